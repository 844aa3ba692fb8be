"""How deeply JSON is nested is counted, and not left to what Python can bear."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forebay.domain.json_values import is_deeper


def lists(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize("depth", [1, 99, 100])
def test_what_is_as_deep_as_it_may_be_is_not_deeper(depth: int) -> None:
    assert not is_deeper(lists(depth))


@pytest.mark.parametrize("depth", [101, 900, 1_400, 100_000])
def test_one_level_more_is_deeper(depth: int) -> None:
    assert is_deeper(lists(depth))


def test_lists_and_objects_count_alike() -> None:
    text = b'{"in":[' * 50 + b"7" + b"]}" * 50

    assert not is_deeper(text)
    assert is_deeper(b"[%b]" % text)


def test_neighbours_are_not_counted_as_levels() -> None:
    assert not is_deeper(json.dumps([[{}, [[]]]] * 1_000).encode(), 4)
    assert is_deeper(json.dumps([[{}, [[[]]]]] * 1_000).encode(), 4)


@pytest.mark.parametrize("text", ["[" * 500, "]" * 500, '"[' * 300, "\\[" * 300, '\\"{' * 300, "é[\n" * 200])
def test_brackets_in_texts_do_not_count(text: str) -> None:
    value: Any = {text: [text]}

    assert not is_deeper(json.dumps(value).encode(), 2)
    assert not is_deeper(json.dumps(value, ensure_ascii=False).encode(), 2)
    assert is_deeper(json.dumps([value]).encode(), 2)


def test_many_deep_values_next_to_each_other_are_counted_in_one_go() -> None:
    chains = b"[%b]" % b",".join([lists(300)] * 2_000)

    assert not is_deeper(chains, 301)
    assert is_deeper(chains, 300)
