"""Failures that are the same one have the same fingerprint, and others have others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.failure_fingerprint import (
    FINGERPRINT,
    fingerprint,
    fingerprint_prefix,
    frames_of,
    may_belong_to,
    normalize_reason,
)

OWN = '  File "/srv/shop/tasks.py", line 10, in charge\n    pay(order)\n'
DEEPER = '  File "/srv/shop/pay.py", line 20, in pay\n    send()\n'
OURS = (
    '  File "/venv/lib/python3.11/site-packages/forebay/worker/invoke.py", line 88, in invoke\n    call()\n'
)
LIBRARY = '  File "/venv/lib/python3.11/site-packages/http/client.py", line 5, in send\n    raise\n'
PYTHON = '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n    raise\n'
HEAD = "Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("KeyError: 'user_17'", "KeyError: <text>"),
        ('Refused: "ann" said `no`', "Refused: <text> said <text>"),
        ("Gone: can't find the user's door", "Gone: can't find the user's door"),
        ("Bad: it isn't 'here'", "Bad: it isn't <text>"),
        ("HTTPError: 503 for https://x.org/a?b=3, again", "HTTPError: # for <url>, again"),
        ("Bounced: ann.b+c@mail.example.org is unknown", "Bounced: <email> is unknown"),
        ("No file /srv/data/a-1.csv", "No file <path>"),
        ("No file C:\\data\\a.csv, or ../b/c in ~/d", "No file <path>, or <path> in <path>"),
        ("parent 550e8400-e29b-41d4-a716-446655440000 is dead", "parent # is dead"),
        ("parent 01KXY4ABCDEFGHJKMNPQRSTVWX is dead", "parent # is dead"),
        ("at 0x7f3aBC of deadbeef01", "at # of #"),
        ("took 12.5 s, -3 of 1,000 at 10:11:12", "took # s, # of # at #"),
        ("user_17 and/or x86", "user_# and/or x#"),
        ("items [1, 2, 3] and 4", "items [#, ...] and #"),
        ("  several\n  lines\tof it ", "several lines of it"),
        ("x" * 300, "x" * 200),
        ("pay-ann, which it depends on, is dead", "a job, which it depends on, is dead"),
    ],
)
def test_words_are_a_reason_without_what_differs_from_job_to_job(reason: str, words: str) -> None:
    assert normalize_reason(reason) == words


@pytest.mark.shows("R-DLQ-21")
@given(st.integers(), st.integers(), st.floats(allow_nan=False, allow_infinity=False, width=16))
def test_numbers_make_no_other_failure(one: int, other: int, rate: float) -> None:
    reason = "Limit: job {} of {} took {:.3f} s"

    assert fingerprint(reason.format(one, other, rate)) == fingerprint(reason.format(0, 1, 2.5))


@given(st.text())
def test_whatever_a_reason_is_it_has_a_fingerprint_and_few_words(reason: str) -> None:
    found = fingerprint(reason, reason)

    assert FINGERPRINT.match(found)
    assert len(normalize_reason(reason)) <= 200
    assert may_belong_to(found, reason)


def test_lines_libraries_and_directories_make_no_other_failure() -> None:
    before = HEAD + OURS + OWN + DEEPER + LIBRARY + PYTHON + "ValueError: 1\n"
    after = re.sub(r"line \d+", "line 999", before).replace("/srv/shop/", "/srv/releases/7/")

    assert frames_of(before) == frames_of(after) == ("tasks.py:charge", "pay.py:pay")
    assert fingerprint("ValueError: 1", before) == fingerprint("ValueError: 2", after)


def test_the_same_words_from_elsewhere_are_another_failure() -> None:
    assert fingerprint("ValueError: 1", HEAD + OWN) != fingerprint("ValueError: 1", HEAD + DEEPER)
    assert fingerprint("ValueError: 1", HEAD + OWN) != fingerprint("TypeError: 1", HEAD + OWN)


def test_of_an_error_that_has_caused_another_one_the_other_counts() -> None:
    both = HEAD + OWN + "KeyError\n\nDuring handling of the above exception\n\n" + HEAD + DEEPER

    assert frames_of(both) == ("pay.py:pay",)


def test_a_function_that_has_called_itself_is_named_once_and_only_the_innermost_are_named() -> None:
    outer = "".join(f'  File "/srv/a.py", line {n}, in f{n}\n' for n in range(5))

    assert frames_of(HEAD + OWN + DEEPER * 50 + OWN) == ("tasks.py:charge", "pay.py:pay", "tasks.py:charge")
    assert frames_of(HEAD + outer) == ("a.py:f2", "a.py:f3", "a.py:f4")


def test_where_there_is_no_code_of_ones_own_what_is_installed_counts_and_then_whatever_there_is() -> None:
    assert frames_of(HEAD + OURS + LIBRARY + PYTHON) == ("client.py:send",)
    assert frames_of(HEAD + OURS + PYTHON) == ("invoke.py:invoke", "decoder.py:raw_decode")
    assert frames_of("no traceback at all") == ()


def test_files_of_other_systems_are_read_too() -> None:
    windows = (
        '  File "C:\\app\\tasks.py", line 1, in run\n  File "C:\\Python\\Lib\\json\\x.py", line 1, in y\n'
    )

    assert frames_of(HEAD + windows) == ("tasks.py:run",)


def test_the_first_half_is_told_by_the_reason_alone() -> None:
    group = fingerprint("Boom: 1", HEAD + OWN)

    assert group.startswith(fingerprint_prefix("Boom: 2"))
    assert may_belong_to(group, "Boom: 3")
    assert not may_belong_to(group, "Bang: 3")
    assert not may_belong_to(group, None)
