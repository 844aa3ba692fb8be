"""Reading pickles that hold plain data, and nothing else.

A pickle is a program, and reading one that a stranger wrote runs it. RQ and Huey write nothing else unless
they are told to. So pickles are read only for somebody who says that they may be, and then by a reader that
knows numbers, texts, lists, dicts, sets, dates, times, decimals and UUIDs, and refuses every other name: no
function of anybody's is called, and no module is imported.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from forebay.integrations.moving_in.found import Unreadable

MOST_BYTES: Final = 16 << 20  # unpacked: a job of ours takes 1 MiB, and a pickle may be longer than its JSON
_PICKLE: Final = b"\x80"
_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = b"\x78"


def _bytearray(data: bytes | str = b"", encoding: str = "latin-1") -> bytearray:
    """Not the class itself: bytearray(10**12) would take all memory there is."""
    return bytearray(data.encode(encoding) if isinstance(data, str) else bytes(memoryview(data)))


def _latin(text: str, encoding: str) -> bytes:
    """How old protocols write bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise Unreadable(f"bytes in the encoding {encoding!r:.20}")
    return text.encode("latin-1")


PLAIN: Final[Mapping[tuple[str, str], Any]] = {
    ("datetime", "date"): date,
    ("datetime", "datetime"): datetime,
    ("datetime", "time"): time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("decimal", "Decimal"): Decimal,
    ("uuid", "UUID"): UUID,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): _bytearray,
    ("_codecs", "encode"): _latin,
    ("collections", "OrderedDict"): dict,
}


class _Reader(pickle.Unpickler):
    def __init__(self, data: BytesIO, classes: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(data)
        self._classes = classes

    def find_class(self, module: str, name: str, /) -> Any:
        module = "builtins" if module == "__builtin__" else module  # so called by old protocols
        if (module, name) not in self._classes:
            raise Unreadable(f"its pickle holds {module}.{name}, and only plain data is read")
        return self._classes[module, name]


def is_pickle(data: bytes) -> bool:
    return data.startswith(_PICKLE)


def read_pickle(
    data: bytes, classes: Mapping[tuple[str, str], Any] = PLAIN, *, may_be_signed: bool = False
) -> Any:
    """What a pickle of plain data holds; raises Unreadable for all others.

    With `may_be_signed` a colon and a signature may stand behind it, which is not looked at.
    """
    stream = BytesIO(data)
    try:
        found = _Reader(stream, classes).load()
    except Unreadable:
        raise
    except Exception as exc:  # a broken pickle raises whatever its opcodes come to
        raise Unreadable(f"its pickle cannot be read: {type(exc).__name__}: {exc!s:.80}") from exc
    rest = stream.read()
    if rest and not (may_be_signed and rest.startswith(b":")):
        raise Unreadable(f"{len(rest):,} bytes stand behind its pickle")
    return found


def unpacked(data: bytes) -> bytes:
    """The same without compression by gzip or zlib; raises Unreadable if it grows too large."""
    if not data.startswith((_GZIP, _ZLIB)):
        return data
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either of the two
    try:
        found = reader.decompress(data, MOST_BYTES)
    except zlib.error as exc:
        raise Unreadable(f"it cannot be unpacked: {exc}") from exc
    if reader.unconsumed_tail or not reader.eof:
        raise Unreadable(f"it is broken, or has more than {MOST_BYTES:,} bytes when it is unpacked")
    return found
