"""A pickle of plain data is read, and no other runs anything."""

from __future__ import annotations

import os
import pickle
import zlib
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest

from forebay.integrations.importers import huey_message, safe_pickle
from forebay.integrations.importers.safe_pickle import decompress, read_pickle
from forebay.integrations.importers.source import UnreadableMessage

PLAIN: list[Any] = [
    None,
    [True, 1, 2**70, 1.5, "é", b"\xff", (), {}, {1, 2}, frozenset({3}), bytearray(b"abc")],
    {"a": [(1, {"b": None})]},
    [date(2030, 1, 31), time(1, 2, 3), datetime(2030, 1, 31, tzinfo=UTC), timedelta(days=-1)],
    datetime(2030, 1, 31, tzinfo=timezone(timedelta(hours=2))),
    [Decimal("9.90"), UUID(int=7)],
    OrderedDict(a=1),
]


class Runs:
    """What a stranger would send."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self._call = call
        self._arguments = arguments

    def __reduce__(self) -> Any:
        return self._call, self._arguments


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", PLAIN, ids=str)
def test_plain_data_is_read_as_it_was_written(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value",
    [
        Runs(os.system, "touch was_here"),
        Runs(eval, "open('was_here', 'w')"),
        Runs(getattr, "", "format"),
        Runs(__import__, "antigravity"),
        Fraction(1, 2),
        os.getcwd,
    ],
    ids=["system", "eval", "getattr", "import", "fraction", "function"],
)
def test_nothing_else_is_read_or_run(value: Any, protocol: int) -> None:
    with pytest.raises(UnreadableMessage, match="only plain data is read"):
        read_pickle(pickle.dumps([value], protocol))

    assert not os.path.exists("was_here")


def test_a_pickle_cannot_take_all_memory_or_be_followed_by_something() -> None:
    with pytest.raises(UnreadableMessage):
        read_pickle(pickle.dumps(Runs(bytearray, 10**13)))
    with pytest.raises(UnreadableMessage, match="3 bytes stand behind"):
        read_pickle(pickle.dumps(1) + b"abc")
    with pytest.raises(UnreadableMessage, match="cannot be read"):
        read_pickle(b"\x80\x05nonsense")


def test_what_is_shared_is_counted_as_often_as_it_is_written() -> None:
    shared: Any = []
    for _ in range(60):
        shared = [shared, shared]
    cycle: list[Any] = []
    cycle.append(cycle)
    long = "x" * 1_000_000

    for value in (shared, {"a": shared}, cycle, [long] * 100, {n: (long,) for n in range(100)}):
        with pytest.raises(UnreadableMessage, match="far larger than a job can be"):
            read_pickle(pickle.dumps(value))
    assert read_pickle(pickle.dumps([["x", "y"]] * 10_000)) == [["x", "y"]] * 10_000


@pytest.mark.parametrize(
    "data",
    [b"\x80\x02Nr\xff\xff\xff\x0f.", b"\x80\x02Np99999999999\n.", b"\x80\x05\x96\xff\xff\xff\xff\x0f\0\0\0."],
    ids=["far place", "far place in words", "many bytes announced"],
)
def test_a_short_pickle_has_no_room_made_for_a_long_one(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: Any) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(safe_pickle._PlainUnpickler, "load", load)

    with pytest.raises(UnreadableMessage):
        read_pickle(data)


@pytest.mark.parametrize("name", huey_message._CLASSES, ids=str)
@pytest.mark.parametrize(
    "state", [b"}X\x01\0\0\0xK\x01s", b"N}X\x01\0\0\0xK\x01s\x86"], ids=["dict", "slots"]
)
def test_a_pickle_cannot_change_what_it_names(name: tuple[str, str], state: bytes) -> None:
    data = b"\x80\x02c" + "\n".join(name).encode() + b"\n" + state + b"b."

    with pytest.raises(UnreadableMessage):
        read_pickle(data, huey_message._CLASSES)

    assert not hasattr(huey_message._CLASSES[name], "x")


def test_what_grows_too_large_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = zlib.compress(bytes(5_000))
    assert decompress(packed) == bytes(5_000)
    assert decompress(b"plain") == b"plain"

    monkeypatch.setattr(safe_pickle, "MAX_BYTES", 4_999)

    with pytest.raises(UnreadableMessage, match="more than 4,999 bytes"):
        decompress(packed)
    with pytest.raises(UnreadableMessage):
        decompress(packed[:-9])
    with pytest.raises(UnreadableMessage, match="cannot be unpacked"):
        decompress(b"\x78\x9cnothing")
