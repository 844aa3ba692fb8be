"""Unpickling of plain data, and nothing else.

A pickle is a program, and reading one from an untrusted source runs it. RQ and Huey write pickles by default.
So pickles are read only if the operator allows it. The reader knows numbers, texts, lists, dicts, sets,
dates, times, decimals and UUIDs, and refuses every other name. It calls no other function, and imports no
module.
"""

from __future__ import annotations

import pickle
import pickletools
import zlib
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from forebay.integrations.importers.pickle_hash_cost import PickleCostCheck
from forebay.integrations.importers.source import UnreadableMessage

MAX_BYTES: Final = 16 << 20  # decompressed: a job takes at most 1 MiB; a pickle may be longer than its JSON
_NODE_BYTES: Final = 8
_PUT_OPCODES: Final = ("PUT", "BINPUT", "LONG_BINPUT")
_PICKLE: Final = b"\x80"
_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = b"\x78"


class FrozenName:
    """A name that a pickle may use and not change: attributes that it would set are refused."""

    @staticmethod
    def __setstate__(*_: object) -> None:
        raise UnreadableMessage("its pickle changes a class, and only plain data is read")


class _ByteArray(FrozenName):
    """Replacement of bytearray: bytearray(10**12) would take all memory."""

    def __new__(cls, data: bytes | str = b"", encoding: str = "latin-1") -> Any:
        return bytearray(data.encode(encoding) if isinstance(data, str) else bytes(memoryview(data)))


class _Latin1Bytes(FrozenName):
    """Bytes as old protocols write them."""

    def __new__(cls, text: str, encoding: str) -> Any:
        if encoding not in ("latin1", "latin-1"):
            raise UnreadableMessage(f"bytes in the encoding {encoding!r:.20}")
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
    ("builtins", "bytearray"): _ByteArray,
    ("_codecs", "encode"): _Latin1Bytes,
    ("collections", "OrderedDict"): dict,
}


class _PlainUnpickler(pickle.Unpickler):
    def __init__(self, data: BytesIO, classes: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(data)
        self._classes = classes

    def find_class(self, module: str, name: str, /) -> Any:
        module = "builtins" if module == "__builtin__" else module  # its name in old protocols
        if (module, name) not in self._classes:
            raise UnreadableMessage(f"its pickle holds {module}.{name}, and only plain data is read")
        return self._classes[module, name]


def is_pickle(data: bytes) -> bool:
    return data.startswith(_PICKLE)


def read_pickle(
    data: bytes, classes: Mapping[tuple[str, str], Any] = PLAIN, *, may_be_signed: bool = False
) -> Any:
    """Read a pickle of plain data; raises UnreadableMessage for all others.

    With `may_be_signed` a colon and a signature may follow it, which is not checked.
    """
    stream = BytesIO(data)
    try:
        _check_memory(data)
        PickleCostCheck(MAX_BYTES // _NODE_BYTES).check(data)
        value = _PlainUnpickler(stream, classes).load()
    except UnreadableMessage:
        raise
    except Exception as exc:  # a broken pickle may raise anything
        raise UnreadableMessage(f"its pickle cannot be read: {type(exc).__name__}: {exc!s:.80}") from exc
    rest = stream.read()
    if rest and not (may_be_signed and rest.startswith(b":")):
        raise UnreadableMessage(f"{len(rest):,} bytes stand behind its pickle")
    _check_size(value)
    return value


def _check_memory(data: bytes) -> None:
    """Raise unless its opcodes take no more memory than it has bytes. One that stores a value at a far
    position allocates all before it, and one that announces many bytes allocates them."""
    for opcode, arg, _ in pickletools.genops(data):
        if opcode.name in _PUT_OPCODES and isinstance(arg, int) and arg > len(data):
            raise UnreadableMessage(
                f"its pickle keeps a value at place {arg:,}, though it has {len(data):,} bytes"
            )


def _check_size(root: Any) -> None:
    """Raise for a value that is small as a pickle and huge as JSON, because parts of it are shared, or
    contain themselves."""
    room, ahead = MAX_BYTES, [root]
    while ahead:
        value = ahead.pop()
        room -= _NODE_BYTES
        if isinstance(value, (str, bytes, bytearray)):
            room -= len(value)
        elif isinstance(value, dict):
            room -= _NODE_BYTES * len(value)
            ahead += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            room -= _NODE_BYTES * len(value)
            ahead += value
        if room < 0:
            raise UnreadableMessage(
                "it is far larger than a job can be, once what its pickle shares is written out"
            )


def decompress(data: bytes) -> bytes:
    """Return the data without compression by gzip or zlib; raises UnreadableMessage if it grows too large."""
    if not data.startswith((_GZIP, _ZLIB)):
        return data
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # detects the format
    try:
        plain = reader.decompress(data, MAX_BYTES)
    except zlib.error as exc:
        raise UnreadableMessage(f"it cannot be unpacked: {exc}") from exc
    if reader.unconsumed_tail or not reader.eof:
        raise UnreadableMessage(f"it is broken, or has more than {MAX_BYTES:,} bytes when it is unpacked")
    return plain
