"""Pickles of a few bytes whose values take hours to hash."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pytest

from forebay.integrations.importers import safe_pickle
from forebay.integrations.importers.safe_pickle import PLAIN, read_pickle
from forebay.integrations.importers.source import UnreadableMessage

MOST: Final = 1 << 20
DEPTH: Final = 20  # takes a second for nothing; each level more doubles it


class Counted:
    """A value that counts how often it is hashed."""

    hashed: ClassVar[int] = 0

    def __hash__(self) -> int:
        Counted.hashed += 1
        return 1


CLASSES: Final[Mapping[tuple[str, str], Any]] = {**PLAIN, ("tests", "Counted"): Counted}
START: Final = b"\x80\x04"
ONE: Final = b"ctests\nCounted\n)R"
# A tuple that holds twice a tuple that holds twice ...
BY_MEMO: Final = ONE + b"\x94" + b"".join(b"h%ch%c\x86\x94" % (level, level) for level in range(DEPTH))
BY_COPY: Final = ONE + b"2\x86" * DEPTH
SHARED: Final = {"memo": BY_MEMO, "copy": BY_COPY}
HASHING: Final = {
    "additems": b"\x8f(%b\x90.",
    "frozenset": b"(%b\x91.",
    "setitem": b"}%bNs.",
    "setitems": b"}(%bNu.",
    "dict": b"(%bNd.",
    "set called": b"cbuiltins\nset\n]%ba\x85R.",
    "frozenset made": b"cbuiltins\nfrozenset\n]%ba\x85\x81.",
    "object": b"(cbuiltins\nset\n]%bao.",
    "instance": b"(]%baibuiltins\nset\n.",
    "in a tuple": b"(\x8f(%b\x90t.",
    "thrown away": b"(\x8f(%b\x901N.",
    "popped": b"\x8f(%b\x900N.",
}


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_pickle, "MAX_BYTES", MOST)
    Counted.hashed = 0


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize("hashing", HASHING.values(), ids=HASHING)
def test_what_takes_long_to_hash_is_refused_before(hashing: bytes, shared: bytes) -> None:
    with pytest.raises(UnreadableMessage, match="takes too long to read"):
        read_pickle(START + hashing % shared, CLASSES)

    assert Counted.hashed == 0


def test_what_is_hashed_again_and_again_is_counted_each_time() -> None:
    listed = b"]\x94(" + ONE * 100 + b"e"  # it is remembered before it is filled
    again = b"cbuiltins\nset\nh\x00\x85R0" * 2_000

    with pytest.raises(UnreadableMessage, match="takes too long to read"):
        read_pickle(START + listed + again + b"N.", CLASSES)

    assert Counted.hashed == 0


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_what_is_shared_within_reason_is_read(protocol: int) -> None:
    point = (1, ("a", b"b", 2**70))
    value = {"points": [point] * 100, point: {point, (point, point)}, (): frozenset({point})}

    assert read_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("broken", [b"\x86.", b"t.", b"h\x05.", b"1.", b"0.", b"\x94."])
def test_a_broken_pickle_is_unreadable(broken: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        read_pickle(START + broken)
