"""Typed JSON: Python values to plain JSON values and back, with tags for types that JSON lacks.

A tagged value is `{"~": name, "v": ...}`, and no other object ever has the key `~`: a dict with it is written
as pairs. docs/reference/payloads.md describes every tag for readers in other languages.

Enums, dataclasses and Structs are written as their value or their fields, without their class. A stored class
name would tie waiting jobs to a module of the program. The task's signature names the class (see `Coercion`).
"""

from __future__ import annotations

import dataclasses
from binascii import a2b_base64, b2a_base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from re import compile as pattern
from types import FunctionType, NoneType
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from forebay.domain.json_values import MAX_DEPTH
from forebay.payload.unstorable_types import refusal_reason

# The range that Go and Rust can read as a number; larger numbers are written as text.
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1

# The hashes of numbers are no secret, so a writer can choose members that collide with each other. Powers of
# two share 61 hashes, so a few equal ones are common.
MAX_EQUAL_HASHES: Final = 100
# Different hashes may still be chosen to collide in the table. With this many members that takes 0.1 s, not
# hours.
MAX_MEMBERS: Final = 10_000
# Comparing an int with a decimal takes the square of its length: 40 us for this many bits.
MAX_BITS: Final = 4_096

_MARK: Final = "~"
_LONG: Final = 16
# Added to the depth inside a set or a key: the outermost of these is decoded as a whole.
_HASHED: Final = 1 << 10
_ONLY_TEXT: Final = frozenset({str})
_MICROSECOND: Final = timedelta(microseconds=1)
_HEX: Final = pattern(r"-?0x[0-9a-fA-F]+\Z")
_SECONDS: Final = pattern(r"(-?)([0-9]{1,15})(?:\.([0-9]{1,6}))?\Z")
_AS_MEMBERS: Final = ("members of a set", "pass a list")
_AS_KEYS: Final = ("keys of a dict", "pass a list of pairs")
_ODD_FLOATS: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

Tagger: TypeAlias = Callable[[Any, int], Any]


class TypeMismatch(Exception):
    """A value cannot be stored or decoded; `steps` lead to it, the innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def path(self, root: str) -> str:
        steps = self.steps[::-1]
        if len(steps) > _LONG:
            steps = [*steps[: _LONG // 2], "…"]
        return root + "".join(steps)


class UnknownTypeTag(TypeMismatch):
    """A tag that this version does not know."""


def key_step(key: object) -> str:
    """Return the step of a path through this key of a dict."""
    if isinstance(key, str):
        return f'["{str.__str__(key)[:40]}"]'.encode("utf-8", "backslashreplace").decode()
    return f"[{key!r:.40}]"


# ------------------------------------------------------------------ to JSON


def tag_items(values: Iterable[Any], depth: int = 0) -> list[Any]:
    """Return each value as msgspec can write it without loss; raise TypeMismatch."""
    tagged: list[Any] = []
    try:
        for value in values:
            kind = type(value)
            # Most values are short texts and ints. A call for each of them would take most of the time.
            if (kind is str and value.isascii()) or (kind is int and MIN_INT <= value <= MAX_INT):
                tagged.append(value)
            else:
                tagged.append(_TAGGERS[kind](value, depth))
    except TypeMismatch as exc:
        exc.steps.append(f"[{len(tagged)}]")
        raise
    return tagged


def tag_named(values: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return named values as `tag_items` returns values; the names may be any text."""
    if type(values) is dict and _is_untagged_table(values):
        return values
    return _tag_table(values, depth)


def _tag_table(values: Mapping[str, Any], depth: int) -> dict[str, Any]:
    tagged: dict[str, Any] = {}
    for name, value in values.items():
        try:
            if type(name) is not str or not name.isascii():
                _check_name(name)
            kind = type(value)
            if (kind is str and value.isascii()) or (kind is int and MIN_INT <= value <= MAX_INT):
                tagged[name] = value
            else:
                tagged[name] = _TAGGERS[kind](value, depth)
        except TypeMismatch as exc:
            exc.steps.append(key_step(name))
            raise
    return tagged


def _is_untagged_table(values: dict[str, Any]) -> bool:
    """Return whether all values can be written as they are. That is nearly always so, and saves a copy."""
    for name, value in values.items():
        kind = type(value)
        if kind is str:
            is_untagged = value.isascii()
        elif kind is int:
            is_untagged = MIN_INT <= value <= MAX_INT
        elif kind is float:
            is_untagged = isfinite(value)
        else:
            is_untagged = kind is bool or value is None
        if not is_untagged or type(name) is not str or not name.isascii():
            return False
    return True


def _check_name(name: object) -> None:
    if type(name) is not str:
        raise TypeMismatch(f"a name must be a str, not a {type(name).__name__}")
    _text(name, 0)


def tag(value: Any) -> Any:
    """Return one value as msgspec can write it without loss; raise TypeMismatch."""
    return _TAGGERS[type(value)](value, 0)


def _make_tag(name: str, value: Any) -> dict[str, Any]:
    return {_MARK: name, "v": value}


def _next_depth(depth: int) -> int:
    if depth % _HASHED >= MAX_DEPTH:
        raise TypeMismatch(
            f"nested deeper than {MAX_DEPTH} levels, or containing itself; it cannot be stored: "
            "pass a flat list, or keep the data elsewhere and pass a reference"
        )
    return depth + 1


def _as_is(value: Any, depth: int) -> Any:
    return value


def _text(value: str, depth: int) -> str:
    # One flag decides for nearly every text. The rest is encoded here, because msgspec would raise without
    # the path.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise TypeMismatch(
                f"a text with half of a surrogate pair (at character {exc.start}) cannot be stored; "
                "decode it with the right encoding, or pass bytes"
            ) from None
    return value


def _int(value: int, depth: int) -> Any:
    # Hexadecimal, because Python refuses to read or write more than 4,300 decimal digits.
    return value if MIN_INT <= value <= MAX_INT else _make_tag("int", hex(value))


def _float(value: float, depth: int) -> Any:
    return value if isfinite(value) else _make_tag("float", str(value))


def _datetime(value: datetime, depth: int) -> Any:
    try:
        at = value.replace(tzinfo=UTC) if value.utcoffset() is None else value.astimezone(UTC)
    except OverflowError:
        raise TypeMismatch("a datetime outside the years 1 to 9999 in UTC cannot be stored") from None
    # Not the method of the value: subclasses of datetime override it.
    text = datetime.isoformat(at.replace(tzinfo=None), timespec="microseconds")
    return _make_tag("datetime", text + "Z")


def _time(value: time, depth: int) -> Any:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise TypeMismatch(
            "a time of a zone whose offset depends on the day cannot be stored; "
            "pass a datetime, or the time and the zone's name"
        )
    return _make_tag("time", time.isoformat(value, timespec="microseconds"))


def _timedelta(value: timedelta, depth: int) -> Any:
    sign = "-" if value < timedelta(0) else ""
    seconds, micros = divmod(abs(value // _MICROSECOND), 1_000_000)
    return _make_tag("timedelta", f"{sign}{seconds}.{micros:06d}")


def _list(value: list[Any], depth: int) -> list[Any]:
    inner = _next_depth(depth)
    if len(value) > _LONG and _is_untagged_row(value):
        return value
    return tag_items(value, inner)


def _is_untagged_row(values: list[Any]) -> bool:
    """Return whether a long list has values of one type that need no tag, without a call for each value."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return bool(min(values) >= MIN_INT and max(values) <= MAX_INT)
    if kinds == {float}:
        return all(map(isfinite, values))
    return kinds == {str} and all(map(str.isascii, values))


def _tuple(value: tuple[Any, ...], depth: int) -> Any:
    return _make_tag("tuple", tag_items(value, _next_depth(depth)))


def _set(value: set[Any] | frozenset[Any], depth: int) -> Any:
    inner, members = _next_depth(depth), []
    for item in value:
        try:
            members.append(_TAGGERS[type(item)](item, inner | _HASHED))
        except TypeMismatch as exc:
            exc.steps.append(f"{{{item!r:.40}}}")
            raise
    if depth < _HASHED:
        _read_members(members, *_AS_MEMBERS)
    # Sorted, so that equal arguments give equal bytes in every process.
    members.sort(key=msgspec.json.encode)
    return _make_tag("frozenset" if isinstance(value, frozenset) else "set", members)


def _dict(value: dict[Any, Any], depth: int) -> Any:
    inner = _next_depth(depth)
    if _MARK not in value and type(value) is dict and _is_untagged_table(value):
        return value
    if _MARK in value or not _ONLY_TEXT.issuperset(map(type, value)):
        return _map(value, inner)
    return _tag_table(value, inner)


def _map(value: dict[Any, Any], depth: int) -> Any:
    keys: list[Any] = []
    pairs: list[list[Any]] = []
    for key, item in value.items():
        try:
            keys.append(_TAGGERS[type(key)](key, depth | _HASHED))
            pairs.append([keys[-1], _TAGGERS[type(item)](item, depth)])
        except TypeMismatch as exc:
            exc.steps.append(key_step(key))
            raise
    if depth < _HASHED:
        _read_members(keys, *_AS_KEYS)
    return _make_tag("map", pairs)


def _enum(value: Enum, depth: int) -> Any:
    try:
        return _TAGGERS[type(value.value)](value.value, _next_depth(depth))
    except TypeMismatch as exc:
        exc.steps.append(".value")
        raise


def _record(value: Any, depth: int) -> Any:
    inner, fields = _next_depth(depth), {}
    for name, item in _fields(value):
        try:
            fields[name] = _TAGGERS[type(item)](item, inner)
        except TypeMismatch as exc:
            exc.steps.append(f".{name}")
            raise
    # A Struct may have a field of any name.
    return _make_tag("map", [list(pair) for pair in fields.items()]) if _MARK in fields else fields


def _function(value: FunctionType, depth: int) -> Any:
    subject = "a lambda" if value.__name__ == "<lambda>" else f"the function {value.__qualname__}"
    raise TypeMismatch(f"{subject} cannot be stored; make it a task and pass the task's name")


def _fields(record: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(record, msgspec.Struct):
        config = record.__struct_config__
        if config.tag_field is not None:
            yield config.tag_field, config.tag
        names = list(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))
    else:
        names = [(field.name, field.name) for field in dataclasses.fields(record)]
    for name, own in names:
        # A field may be unset: by msgspec.UNSET, or because it was never assigned.
        if (value := getattr(record, own, msgspec.UNSET)) is not msgspec.UNSET:
            yield name, value


class _Taggers(dict[type, Tagger]):
    def __missing__(self, kind: type) -> Tagger:
        # Not cached: classes may be created and dropped at run time.
        if reason := refusal_reason(kind):
            raise TypeMismatch(reason)
        if issubclass(kind, Enum):
            return _enum
        if issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind):
            return _record
        for base, tagger in _BY_BASE.items():
            if issubclass(kind, base):
                return tagger
        raise TypeMismatch(
            f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored; "
            "pass plain values, or make it a dataclass"
        )


_TAGGERS: Final = _Taggers(
    {
        str: _text,
        int: _int,
        bool: _as_is,
        NoneType: _as_is,
        float: _float,
        list: _list,
        dict: _dict,
        tuple: _tuple,
        set: _set,
        frozenset: _set,
        datetime: _datetime,
        date: lambda value, depth: _make_tag("date", date.isoformat(value)),
        time: _time,
        timedelta: _timedelta,
        Decimal: lambda value, depth: _make_tag("decimal", Decimal.__str__(value)),
        UUID: lambda value, depth: _make_tag("uuid", UUID.__str__(value)),
        bytes: lambda value, depth: _make_tag("bytes", b2a_base64(value, newline=False).decode()),
        FunctionType: _function,
    }
)
# A subclass is stored as its base type; msgspec takes only exact texts and numbers.
_BY_BASE: Final[Mapping[type, Tagger]] = {
    **{base: tagger for base, tagger in _TAGGERS.items() if base not in (bool, NoneType, FunctionType)},
    str: lambda value, depth: _text(str.__str__(value), depth),
    int: lambda value, depth: _int(int.__index__(value), depth),
    float: lambda value, depth: _float(float.__float__(value), depth),
}


# ------------------------------------------------------------------ from JSON


def untag(value: Any) -> Any:
    """Return the value that `tag` was given; raise TypeMismatch for a broken tag, UnknownTypeTag for a new
    one."""
    kind = type(value)
    if kind is list:
        return [untag(item) for item in value]
    if kind is not dict:
        return value
    if _MARK in value:
        return _read_tag(value)
    return {key: untag(item) for key, item in value.items()}


def _read_tag(value: dict[str, Any]) -> Any:
    name = value[_MARK]
    if type(name) is not str or value.keys() != {_MARK, "v"}:
        raise TypeMismatch("a tagged value has a key ~ with a name, a key v, and no other")
    if name not in _READERS:
        raise UnknownTypeTag(f"the tag {name[:40]!r} is not known here")
    content, (kind, reader) = value["v"], _READERS[name]
    if type(content) is not kind:
        raise TypeMismatch(f"the tag {name!r} needs a {kind.__name__}, not a {type(content).__name__}")
    try:
        return reader(content)
    except (ValueError, TypeError, ArithmeticError, KeyError) as exc:
        raise TypeMismatch(f"the tag {name!r} cannot be read: {exc!s:.80}") from exc


def _read_int(text: str) -> int:
    if not _HEX.match(text):
        raise ValueError("not a hexadecimal number")
    return int(text, 16)


def _read_members(stored: Iterable[Any], role: str, remedy: str) -> list[Any]:
    """Decode the members of a set or the keys of a dict. Raise TypeMismatch for those that have no hash, are
    equal to another, or would take long to compare."""
    members = [untag(item) for item in stored]
    if len(members) > MAX_MEMBERS and not _ONLY_TEXT.issuperset(map(type, members)):
        raise TypeMismatch(f"there can be at most {MAX_MEMBERS:,} {role} that are not text; {remedy}")
    try:
        hashes = set(map(hash, members))
    except TypeError:
        # They are decoded as dicts, even inside a tuple.
        raise TypeMismatch(f"dataclasses and Structs cannot be stored as {role}; {remedy}") from None
    if len(hashes) < len(members):
        _check_equal_hashes(members, role, remedy)
    return members


def _check_equal_hashes(members: list[Any], role: str, remedy: str) -> None:
    counts = Counter(map(hash, members))
    if max(counts.values()) > MAX_EQUAL_HASHES:
        raise TypeMismatch(f"more than {MAX_EQUAL_HASHES} {role} have the same hash; {remedy}")
    if any(_is_long([member]) for member in members if counts[hash(member)] > 1):
        raise TypeMismatch(f"{role} with the same hash can have at most {MAX_BITS:,} bits; {remedy}")
    if len(_build_set(members)) < len(members):
        raise TypeMismatch(f"two {role} are equal once they are stored; {remedy}")


def _is_long(values: Iterable[Any]) -> bool:
    """Return whether one of these values, or of their members, is a number that takes long to compare."""
    return any(
        value.bit_length() > MAX_BITS
        if type(value) is int
        else type(value) in (tuple, frozenset) and _is_long(value)
        for value in values
    )


def _build_set(members: list[Any]) -> set[Any]:
    """Build a set as `set` does, but let other threads run between two members, however long these
    compare."""
    return {member for member in members}


def _read_set(items: list[Any]) -> set[Any]:
    return _build_set(_read_members(items, *_AS_MEMBERS))


def _read_map(pairs: list[Any]) -> dict[Any, Any]:
    keys = _read_members([key for key, _ in pairs], *_AS_KEYS)
    return {key: untag(item) for key, (_, item) in zip(keys, pairs, strict=True)}


def _read_datetime(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _read_timedelta(text: str) -> timedelta:
    if not (parts := _SECONDS.match(text)):
        raise ValueError("not a number of seconds")
    sign, seconds, fraction = parts.groups("")
    length = timedelta(seconds=int(seconds), microseconds=int(fraction.ljust(6, "0")))
    return -length if sign else length


_READERS: Final[Mapping[str, tuple[type, Callable[[Any], Any]]]] = {
    "int": (str, _read_int),
    "float": (str, _ODD_FLOATS.__getitem__),
    "datetime": (str, _read_datetime),
    "date": (str, date.fromisoformat),
    "time": (str, time.fromisoformat),
    "timedelta": (str, _read_timedelta),
    "decimal": (str, Decimal),
    "uuid": (str, UUID),
    "bytes": (str, lambda text: a2b_base64(text, strict_mode=True)),
    "tuple": (list, lambda items: tuple(map(untag, items))),
    "set": (list, _read_set),
    "frozenset": (list, lambda items: frozenset(_read_set(items))),
    "map": (list, _read_map),
}
TAGS: Final = tuple(_READERS)
