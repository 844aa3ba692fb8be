"""The hash chain of the audit log."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forebay.domain.audit_hash_chain import START, ChainLine, ChainLink, extend_chain, find_flaw, hash_line
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import Event, EventKind

EVENT = Event(
    kind=EventKind.QUEUE_CHANGED,
    occurred_at=5,
    job_id=JobId("j"),
    queue=QueueName("mail"),
    attempt=2,
    actor="ann#r1",
    detail="paused",
    changes={"state": ("active", "paused"), "weight": (1, 2)},
)


def lines(*details: str) -> list[ChainLine]:
    return extend_chain(START, [(10 * n, replace(EVENT, detail=text)) for n, text in enumerate(details)])


@pytest.mark.shows("R-SEC-12")
def test_each_line_carries_the_hash_of_the_one_before() -> None:
    first, second, third = lines("a", "b", "c")

    assert [line.position for line in (first, second, third)] == [1, 2, 3]
    assert (first.previous, second.previous, third.previous) == (START.hash, first.hash, second.hash)
    assert len({first.hash, second.hash, third.hash}) == 3
    assert extend_chain(second.link, [(20, third.event)]) == [third]


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": EventKind.API_KEY_CHANGED},
        {"occurred_at": 6},
        {"job_id": None},
        {"queue": QueueName("mai")},
        {"attempt": 3},
        {"actor": "bob#r1"},
        {"detail": "Paused"},
        {"changes": {"state": ("active", "paused"), "weight": (1, 3)}},
    ],
)
def test_whatever_is_changed_in_a_line_does_not_fit_its_hash(changes: dict[str, object]) -> None:
    [line] = extend_chain(START, [(1, EVENT)])

    assert find_flaw(line, START) is None
    assert (
        find_flaw(replace(line, event=replace(EVENT, **changes)), START)
        == "its content does not fit its hash"
    )
    assert find_flaw(replace(line, number=2), None) == "its content does not fit its hash"


def test_a_line_that_is_gone_or_moved_is_found() -> None:
    first, second, third = lines("a", "b", "c")

    assert find_flaw(third, second.link) is None
    assert find_flaw(third, first.link) == "expected position 2: lines are missing or stand twice"
    assert find_flaw(second, second.link) == "expected position 3: lines are missing or stand twice"
    other = lines("a", "x")[1]
    assert find_flaw(third, other.link) == "it does not carry the hash of the line before it"


def test_the_order_of_changes_does_not_matter() -> None:
    turned = replace(EVENT, changes=dict(reversed(EVENT.changes.items())))

    assert hash_line(START, 1, turned) == hash_line(START, 1, EVENT)


def test_an_older_program_that_does_not_know_a_kind_gives_the_same_hash() -> None:
    as_it_reads = replace(EVENT, kind=EventKind.COMMENT, detail="queue_changed: paused")

    assert hash_line(START, 1, as_it_reads) == hash_line(START, 1, EVENT)


def test_the_text_that_is_hashed_never_changes() -> None:
    """Chains that are stored must fit for ever."""
    link = ChainLink(6, "f" * 64)

    assert hash_line(link, 9, EVENT) == "d9e4fe75f15b074e2a3102a14f6e1da21efad37e1c827109f54406f1acd402f0"
    # A line with the former name of this kind is read as a comment.
    earlier = replace(EVENT, kind=EventKind.COMMENT, detail="queue: paused")
    assert hash_line(link, 9, earlier) == "ecbaf5623dc5a6d85b4966837da185d25796172bc60160b341823f70cf10c162"
