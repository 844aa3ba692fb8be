"""Parameters in the binary format of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final

from psycopg.abc import DumperKey
from psycopg.adapt import Dumper, PyFormat
from psycopg.pq import Format
from psycopg.types.array import ListBinaryDumper

Packed = bytes | None

_TEXT: Final = 25  # type oids of the server
_BYTEA: Final = 17
_BIGINT: Final = 20
_ARRAY: Final = Struct("!iiIii")
_LENGTH: Final = Struct("!i").pack
_MAX_UNIFORM_LENGTH: Final = 127  # a greater length is not an ASCII character
_NULL: Final = _LENGTH(-1)
_EIGHT_BYTES: Final = Struct("!iq").pack
integer: Final = Struct("!i").pack
bigint: Final = Struct("!q").pack
boolean: Final = Struct("!?").pack


def text(value: str | None) -> Packed:
    return None if value is None else value.encode()


def texts(values: Sequence[str | None]) -> bytes:
    """Return an array of texts in binary format."""
    return _array(_TEXT, values, _items(text(value) for value in values))


def uniform_texts(values: Sequence[str]) -> bytes:
    """Return the same as `texts`, faster for texts of one length, such as ids: 0.04 us each instead of 0.16.

    Their length prefixes are joined as text, and all of it is encoded at once.
    """
    sizes = set(map(len, values))
    length = sizes.pop() if len(sizes) == 1 else _MAX_UNIFORM_LENGTH + 1
    if length > _MAX_UNIFORM_LENGTH:
        return texts(values)
    before = _LENGTH(length).decode()
    joined = before + before.join(values)
    return _ARRAY.pack(1, 1, _TEXT, len(values), 1) + joined.encode() if joined.isascii() else texts(values)


def bigints(values: Sequence[int | None]) -> bytes:
    """Return an array of integers in binary format."""
    return _array(_BIGINT, values, [_NULL if value is None else _EIGHT_BYTES(8, value) for value in values])


def blobs(values: Sequence[Packed]) -> bytes:
    """Return an array of bytes in binary format."""
    return _array(_BYTEA, values, _items(values))


def _array(kind: int, values: Sequence[object], items: Iterable[bytes]) -> bytes:
    return b"".join([_ARRAY.pack(1, 1, kind, len(values), 1), *items])


def _items(values: Iterable[Packed]) -> Iterable[bytes]:
    for value in values:
        if value is None:
            yield _NULL
        else:
            yield _LENGTH(len(value))
            yield value


class _Lists(Dumper):
    """Dumper for lists of one type. The driver inspects each value three times, which takes 1.5 us each."""

    format = Format.BINARY
    pack: Callable[[Sequence[Any]], bytes]

    def dump(self, obj: Sequence[Any]) -> bytes:
        return type(self).pack(obj)


class _Texts(_Lists):
    oid = 1009

    @staticmethod
    def pack(obj: Sequence[Any]) -> bytes:
        return texts(obj) if None in obj else uniform_texts(obj)


class _Bigints(_Lists):
    oid = 1016
    pack = staticmethod(bigints)


class _Blobs(_Lists):
    oid = 1001
    pack = staticmethod(blobs)


_PACKED_HERE: Final[dict[type, type[_Lists]]] = {str: _Texts, int: _Bigints, bytes: _Blobs}


class ListDumper(ListBinaryDumper):
    """Dumper for the lists that statements take: flat, and of one type."""

    def get_key(self, obj: list[Any], format: PyFormat) -> DumperKey:
        kind = type(next((item for item in obj if item is not None), None))
        return (list, kind) if kind in _PACKED_HERE else super().get_key(obj, format)

    def upgrade(self, obj: list[Any], format: PyFormat) -> Any:
        kind = type(next((item for item in obj if item is not None), None))
        return _PACKED_HERE[kind](list) if kind in _PACKED_HERE else super().upgrade(obj, format)
