"""Values whose hashes collide: refused before they cost more than their size."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from zlib import crc32

import msgspec
import pytest

from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.errors import CorruptPayload, PayloadError
from forebay.payload import typed_json
from forebay.payload.codec import (
    decode_result,
    encode_call,
    encode_result,
    encode_tagged_call,
    encode_tagged_result,
    is_same_call,
)
from forebay.payload.typed_json import MAX_BITS, MAX_EQUAL_HASHES, MAX_MEMBERS, TypeMismatch, tag, untag

MODULUS: Final = 2**61 - 1  # of the hashes of all numbers
DEEP: Final = 40


class Counted(int):
    """A number whose comparisons are counted."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))


def colliding(count: int) -> list[dict[str, str]]:
    return [{"~": "int", "v": hex((number + 1) * MODULUS)} for number in range(count)]


def as_set(members: list[Any]) -> Any:
    return {"~": "set", "v": members}


def as_map(members: list[Any]) -> Any:
    return {"~": "map", "v": [[member, None] for member in members]}


def as_frozenset(members: list[Any]) -> Any:
    return {"~": "frozenset", "v": members}


HASHED: Final[list[Callable[[list[Any]], Any]]] = [as_set, as_frozenset, as_map]


def stored(value: Any) -> bytes:
    body = msgspec.json.encode({"v": 1, "result": value})
    return b"fb1 %08x\n%b" % (crc32(b"\n" + body), body)


@pytest.mark.parametrize("hashed", HASHED)
def test_members_of_one_hash_are_refused_at_the_door(hashed: Callable[[list[Any]], Any]) -> None:
    with pytest.raises(PayloadError, match=r"more than 100 .* have the same hash; pass a list"):
        encode_tagged_call([hashed(colliding(MAX_EQUAL_HASHES + 1))], {})


@pytest.mark.parametrize("hashed", HASHED)
def test_stored_members_of_one_hash_are_corrupt(hashed: Callable[[list[Any]], Any]) -> None:
    with pytest.raises(CorruptPayload, match="the same hash"):
        decode_result(stored(hashed(colliding(MAX_EQUAL_HASHES + 1))))


@pytest.mark.parametrize("hashed", HASHED)
def test_as_many_as_may_be_are_read_and_written(hashed: Callable[[list[Any]], Any]) -> None:
    value = untag(hashed(colliding(MAX_EQUAL_HASHES)))

    assert decode_result(encode_result(value)) == value
    assert len(value) == MAX_EQUAL_HASHES


@pytest.mark.parametrize("many", [set, dict.fromkeys])
def test_our_own_sets_of_one_hash_are_refused_as_well(many: Callable[[Any], Any]) -> None:
    numbers = [(number + 1) * MODULUS for number in range(MAX_EQUAL_HASHES + 1)]

    with pytest.raises(PayloadError, match="the same hash"):
        encode_result(many(numbers))


@pytest.mark.parametrize("hashed", HASHED)
def test_members_are_bounded_in_number(hashed: Callable[[list[Any]], Any]) -> None:
    # Numbers with different hashes may still meet in the table, by a pattern that a writer chooses.
    assert len(untag(hashed(list(range(MAX_MEMBERS))))) == MAX_MEMBERS
    with pytest.raises(TypeMismatch, match=r"at most 10,000 .* that are not text; pass a list"):
        untag(hashed(list(range(MAX_MEMBERS + 1))))


@pytest.mark.parametrize("hashed", HASHED)
def test_texts_are_not_bounded(hashed: Callable[[list[Any]], Any]) -> None:
    # The hashes of texts are secret: each process has a key of its own for them.
    assert len(untag(hashed([str(number) for number in range(MAX_MEMBERS + 1)]))) == MAX_MEMBERS + 1


@pytest.mark.parametrize("hashed", HASHED)
def test_equal_members_are_refused(hashed: Callable[[list[Any]], Any]) -> None:
    with pytest.raises(TypeMismatch, match=r"two .* are equal once they are stored"):
        untag(hashed([1, {"~": "decimal", "v": "1.0"}]))


@pytest.mark.parametrize("around", [lambda number: number, lambda number: (frozenset({number}),)])
def test_members_of_one_hash_are_bounded_in_bits(around: Callable[[int], Any]) -> None:
    # To compare a decimal with a whole number takes the square of its length.
    large = 2 ** (MAX_BITS - 1)

    for value in ({around(large), around(large + MODULUS)}, {around(large**3)}):
        assert decode_result(encode_result(value)) == value
    with pytest.raises(TypeMismatch, match=r"with the same hash can have at most 4,096 bits; pass a list"):
        tag({around(large**3), around(large**3 + MODULUS)})


def test_a_set_in_sets_is_read_once_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(text: str) -> Decimal:
        nonlocal read
        read += 1
        return Decimal(text)

    monkeypatch.setitem(typed_json._READERS, "decimal", (str, counted))
    value: Any = Decimal(1)
    for _ in range(DEEP):
        value = frozenset({value})

    tag(value)

    assert read == 1


def test_a_set_in_a_set_may_not_lose_a_member_either() -> None:
    class Kind(msgspec.Struct, frozen=True):
        number: int

    class Color(Enum):
        RED = 1

    with pytest.raises(TypeMismatch, match="two members of a set are equal once they are stored"):
        tag({frozenset({Color.RED, 1})})
    with pytest.raises(TypeMismatch, match="cannot be stored as members of a set"):
        tag({frozenset({Kind(1)})})


def test_comparisons_grow_with_the_number_of_members_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(typed_json._READERS, "int", (str, lambda text: Counted(int(text, 16))))
    Counted.compared = 0

    with pytest.raises(TypeMismatch):
        untag(as_set(colliding(2_000)))

    assert Counted.compared <= MAX_EQUAL_HASHES**2


@pytest.mark.parametrize(
    ("encode", "words"),
    [
        (lambda value: encode_tagged_call([1, value], {}), r"args\[1\] is the largest part"),
        (lambda value: encode_tagged_call([], {"k": value}), r"kwargs\[\"k\"\] is the largest part"),
        (encode_tagged_result, "the result has"),
    ],
)
def test_the_size_is_checked_before_a_tag_is_read(
    monkeypatch: pytest.MonkeyPatch, encode: Callable[[Any], bytes], words: str
) -> None:
    read: list[str] = []
    monkeypatch.setitem(typed_json._READERS, "uuid", (str, read.append))

    with pytest.raises(PayloadError, match=words):
        encode([{"~": "uuid", "v": "u" * MAX_PAYLOAD}])

    assert read == []


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"a": 1, "b": [{"c": 2, "d": 3}]}, {"b": [{"d": 3, "c": 2}], "a": 1}, True),
        ({"a": {1: 2, (3,): 4}}, {"a": {(3,): 4, 1: 2}}, True),
        ({"a": {1: {2: 3, 4: 5}}}, {"a": {1: {4: 5, 2: 3}}}, True),
        ({"a": {1, 2}}, {"a": {2, 1}}, True),
        ({"a": {1: 2}}, {"a": {1: 3}}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"~": 1}, {"~": 2}, False),
        ({"password": "a"}, {"password": "b"}, True),
    ],
)
def test_calls_are_the_same_in_any_order(one: Any, other: Any, is_same: bool) -> None:
    assert is_same_call(encode_call((), one), encode_call((), other)) is is_same


def test_calls_are_compared_without_comparing_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # One request is enough to compare a decimal with a whole number of a million digits.
    monkeypatch.setitem(typed_json._READERS, "int", (str, lambda _: pytest.fail("read")))

    assert not is_same_call(encode_call((2**70,), {}), encode_call((Decimal(2**70),), {}))


@pytest.mark.parametrize("broken", [b"", stored(1), b"fb1 00000000 key=k.01234567\n"])
def test_what_cannot_be_read_is_the_same_as_itself_only(broken: bytes) -> None:
    assert is_same_call(broken, broken)
    assert not is_same_call(broken, encode_call((), {}))
