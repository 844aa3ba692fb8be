"""Python values to plain JSON values and back, with tags for what JSON has no word for.

A tagged value is `{"~": name, "v": ...}`, and no other object ever has the key `~`: a dict that has it is
written as pairs. docs/reference/payloads.md describes every tag for readers in other languages.

Enums, dataclasses and Structs are written as their value or their fields, without their class: a stored
name of a class would tie waiting jobs to a place in somebody's code. The task's signature knows the class
(see `Fitting` in fitting.py).
"""

from __future__ import annotations

import dataclasses
from binascii import a2b_base64, b2a_base64
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

from forebay.domain.nesting import MAX_DEPTH

# What Go and Rust can read as a number; what is beyond goes as text.
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1

_MARK: Final = "~"
_LONG: Final = 16
_ONLY_TEXT: Final = frozenset({str})
_MICROSECOND: Final = timedelta(microseconds=1)
_HEX: Final = pattern(r"-?0x[0-9a-fA-F]+\Z")
_SECONDS: Final = pattern(r"(-?)([0-9]{1,15})(?:\.([0-9]{1,6}))?\Z")
_ODD_FLOATS: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

Tagger: TypeAlias = Callable[[Any, int], Any]


class Unfit(Exception):
    """A value cannot be stored or read; `steps` lead to it, the innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def path(self, root: str) -> str:
        steps = self.steps[::-1]
        if len(steps) > _LONG:
            steps = [*steps[: _LONG // 2], "…"]
        return root + "".join(steps)


class UnknownTag(Unfit):
    """A tag that this version does not know."""


def key_step(key: object) -> str:
    """The step of a path that goes through this key of a dict."""
    if isinstance(key, str):
        return f'["{str.__str__(key)[:40]}"]'.encode("utf-8", "backslashreplace").decode()
    return f"[{key!r:.40}]"


# ------------------------------------------------------------------ to JSON


def tag_items(values: Iterable[Any], depth: int = 0) -> list[Any]:
    """Each value as msgspec can write it without loss; raises Unfit."""
    done: list[Any] = []
    try:
        for value in values:
            kind = type(value)
            # Most values are short texts and numbers. A call for each would take longer than all the rest.
            if (kind is str and value.isascii()) or (kind is int and MIN_INT <= value <= MAX_INT):
                done.append(value)
            else:
                done.append(_TAGGERS[kind](value, depth))
    except Unfit as exc:
        exc.steps.append(f"[{len(done)}]")
        raise
    return done


def tag_named(values: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The same for values with names, which may be any text."""
    if type(values) is dict and _is_plain_table(values):
        return values
    return _tagged_table(values, depth)


def _tagged_table(values: Mapping[str, Any], depth: int) -> dict[str, Any]:
    done: dict[str, Any] = {}
    for name, value in values.items():
        try:
            if type(name) is not str or not name.isascii():
                _check_name(name)
            kind = type(value)
            if (kind is str and value.isascii()) or (kind is int and MIN_INT <= value <= MAX_INT):
                done[name] = value
            else:
                done[name] = _TAGGERS[kind](value, depth)
        except Unfit as exc:
            exc.steps.append(key_step(name))
            raise
    return done


def _is_plain_table(values: dict[str, Any]) -> bool:
    """Whether all of it can be written as it is. That is nearly always so, and to copy it takes as long."""
    for name, value in values.items():
        kind = type(value)
        if kind is str:
            is_plain = value.isascii()
        elif kind is int:
            is_plain = MIN_INT <= value <= MAX_INT
        elif kind is float:
            is_plain = isfinite(value)
        else:
            is_plain = kind is bool or value is None
        if not is_plain or type(name) is not str or not name.isascii():
            return False
    return True


def _check_name(name: object) -> None:
    if type(name) is not str:
        raise Unfit(f"a name must be a str, not a {type(name).__name__}")
    _text(name, 0)


def tag(value: Any) -> Any:
    """One value as msgspec can write it without loss; raises Unfit."""
    return _TAGGERS[type(value)](value, 0)


def _mark(name: str, value: Any) -> dict[str, Any]:
    return {_MARK: name, "v": value}


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise Unfit(
            f"nested deeper than {MAX_DEPTH} levels, or containing itself; it cannot be stored: "
            "pass a flat list, or keep the data elsewhere and pass a reference"
        )
    return depth + 1


def _as_is(value: Any, depth: int) -> Any:
    return value


def _text(value: str, depth: int) -> str:
    # One flag decides for nearly every text; the others are tried, because msgspec would refuse without
    # a word about where.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise Unfit(
                f"a text with half of a surrogate pair (at character {exc.start}) cannot be stored; "
                "decode it with the right encoding, or pass bytes"
            ) from None
    return value


def _int(value: int, depth: int) -> Any:
    # Hexadecimal, because Python refuses to read or write more than 4,300 decimal digits.
    return value if MIN_INT <= value <= MAX_INT else _mark("int", hex(value))


def _float(value: float, depth: int) -> Any:
    return value if isfinite(value) else _mark("float", str(value))


def _datetime(value: datetime, depth: int) -> Any:
    try:
        at = value.replace(tzinfo=UTC) if value.utcoffset() is None else value.astimezone(UTC)
    except OverflowError:
        raise Unfit("a datetime outside the years 1 to 9999 in UTC cannot be stored") from None
    # Not the method of the value: subclasses of datetime write themselves in their own ways.
    text = datetime.isoformat(at.replace(tzinfo=None), timespec="microseconds")
    return _mark("datetime", text + "Z")


def _time(value: time, depth: int) -> Any:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise Unfit(
            "a time of a zone whose offset depends on the day cannot be stored; "
            "pass a datetime, or the time and the zone's name"
        )
    return _mark("time", time.isoformat(value, timespec="microseconds"))


def _timedelta(value: timedelta, depth: int) -> Any:
    sign = "-" if value < timedelta(0) else ""
    seconds, micros = divmod(abs(value // _MICROSECOND), 1_000_000)
    return _mark("timedelta", f"{sign}{seconds}.{micros:06d}")


def _list(value: list[Any], depth: int) -> list[Any]:
    inner = _deeper(depth)
    if len(value) > _LONG and _is_plain_row(value):
        return value
    return tag_items(value, inner)


def _is_plain_row(values: list[Any]) -> bool:
    """Whether a long list holds values of one harmless kind, found out without a call for each."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return bool(min(values) >= MIN_INT and max(values) <= MAX_INT)
    if kinds == {float}:
        return all(map(isfinite, values))
    return kinds == {str} and all(map(str.isascii, values))


def _tuple(value: tuple[Any, ...], depth: int) -> Any:
    return _mark("tuple", tag_items(value, _deeper(depth)))


def _set(value: set[Any] | frozenset[Any], depth: int) -> Any:
    inner, done = _deeper(depth), []
    for item in value:
        try:
            done.append(_TAGGERS[type(item)](item, inner))
        except Unfit as exc:
            exc.steps.append(f"{{{item!r:.40}}}")
            raise
    _check_distinct(done, len(value), "members of a set", "pass a list")
    # In order, so that equal arguments give equal bytes in every process.
    done.sort(key=msgspec.json.encode)
    return _mark("frozenset" if isinstance(value, frozenset) else "set", done)


def _dict(value: dict[Any, Any], depth: int) -> Any:
    inner = _deeper(depth)
    if _MARK not in value and type(value) is dict and _is_plain_table(value):
        return value
    if _MARK in value or not _ONLY_TEXT.issuperset(map(type, value)):
        return _map(value, inner)
    return _tagged_table(value, inner)


def _map(value: dict[Any, Any], depth: int) -> Any:
    keys: list[Any] = []
    pairs: list[list[Any]] = []
    for key, item in value.items():
        try:
            keys.append(_TAGGERS[type(key)](key, depth))
            pairs.append([keys[-1], _TAGGERS[type(item)](item, depth)])
        except Unfit as exc:
            exc.steps.append(key_step(key))
            raise
    _check_distinct(keys, len(value), "keys of a dict", "pass a list of pairs")
    return _mark("map", pairs)


def _check_distinct(stored: list[Any], count: int, role: str, instead: str) -> None:
    """Refuse what would come back equal to another, or could not be hashed."""
    try:
        is_same = len(set(map(untag, stored))) == count
    except TypeError:
        # They come back as dicts, even when they sit in a tuple.
        raise Unfit(f"dataclasses and Structs cannot be stored as {role}; {instead}") from None
    if not is_same:
        raise Unfit(f"two {role} are equal once they are stored; {instead}")


def _enum(value: Enum, depth: int) -> Any:
    try:
        return _TAGGERS[type(value.value)](value.value, _deeper(depth))
    except Unfit as exc:
        exc.steps.append(".value")
        raise


def _record(value: Any, depth: int) -> Any:
    inner, done = _deeper(depth), {}
    for name, item in _fields(value):
        try:
            done[name] = _TAGGERS[type(item)](item, inner)
        except Unfit as exc:
            exc.steps.append(f".{name}")
            raise
    # A Struct may call a field anything.
    return _mark("map", [list(pair) for pair in done.items()]) if _MARK in done else done


def _function(value: FunctionType, depth: int) -> Any:
    what = "a lambda" if value.__name__ == "<lambda>" else f"the function {value.__qualname__}"
    raise Unfit(f"{what} cannot be stored; make it a task and pass the task's name")


def _fields(record: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(record, msgspec.Struct):
        config = record.__struct_config__
        if config.tag_field is not None:
            yield config.tag_field, config.tag
        names = list(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))
    else:
        names = [(field.name, field.name) for field in dataclasses.fields(record)]
    for name, own in names:
        # A field may be unset: by msgspec's word for it, or because nobody has given it a value.
        if (value := getattr(record, own, msgspec.UNSET)) is not msgspec.UNSET:
            yield name, value


class _Taggers(dict[type, Tagger]):
    def __missing__(self, kind: type) -> Tagger:
        # Not kept: classes may be made and forgotten at run time.
        if reason := _refusal(kind):
            raise Unfit(reason)
        if issubclass(kind, Enum):
            return _enum
        if issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind):
            return _record
        for base, tagger in _BY_BASE.items():
            if issubclass(kind, base):
                return tagger
        raise Unfit(
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
        date: lambda value, depth: _mark("date", date.isoformat(value)),
        time: _time,
        timedelta: _timedelta,
        Decimal: lambda value, depth: _mark("decimal", Decimal.__str__(value)),
        UUID: lambda value, depth: _mark("uuid", UUID.__str__(value)),
        bytes: lambda value, depth: _mark("bytes", b2a_base64(value, newline=False).decode()),
        FunctionType: _function,
    }
)
# A subclass is stored as what it is built on; msgspec takes only exact texts and numbers.
_BY_BASE: Final[Mapping[type, Tagger]] = {
    **{base: tagger for base, tagger in _TAGGERS.items() if base not in (bool, NoneType, FunctionType)},
    str: lambda value, depth: _text(str.__str__(value), depth),
    int: lambda value, depth: _int(int.__index__(value), depth),
    float: lambda value, depth: _float(float.__float__(value), depth),
}


# ------------------------------------------------------------------ what is refused, in plain words

# By name, so that nothing has to be imported to be refused.
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    name: words
    for words, names in {
        ("a function", "make it a task and pass the task's name"): (
            "builtins.builtin_function_or_method builtins.method functools.partial"
        ),
        ("a class", "pass its name"): "builtins.type",
        ("a module", "pass its name"): "builtins.module",
        ("a generator", "pass a list of what it yields"): "builtins.generator builtins.async_generator",
        ("a coroutine", "await it and pass what it returns"): "builtins.coroutine _asyncio.Future",
        ("a future", "pass its result"): "concurrent.futures._base.Future",
        ("an open file", "pass its path"): "_io._IOBase tempfile._TemporaryFileWrapper",
        ("a path object", "pass str(path)"): "pathlib.PurePath pathlib._local.PurePath",
        ("a socket", "pass the address"): "_socket.socket",
        ("a lock", "take one in the task"): (
            "_thread.lock _thread.RLock threading.Condition threading.Semaphore threading.Event "
            "asyncio.locks.Lock asyncio.locks.Event asyncio.locks.Condition asyncio.locks.Semaphore"
        ),
        ("a thread", "start one in the task"): "threading.Thread",
        ("a database connection", "open one in the task"): (
            "sqlite3.Connection sqlite3.Cursor psycopg.BaseConnection psycopg.BaseCursor "
            "psycopg._connection_base.BaseConnection psycopg._cursor_base.BaseCursor "
            "sqlalchemy.engine.base.Connection sqlalchemy.engine.base.Engine sqlalchemy.orm.session.Session"
        ),
        ("an ORM object", "pass its key and load it in the task"): (
            "django.db.models.base.Model peewee.Model"
        ),
        ("an exception", "pass its text"): "builtins.BaseException",
        ("a changeable row of bytes", "pass bytes(value)"): "builtins.bytearray builtins.memoryview",
        ("a sequence of this type", "pass list(value)"): "builtins.range collections.deque",
        ("a complex number", "pass its two parts"): "builtins.complex",
    }.items()
    for name in names.split()
}


def _refusal(kind: type) -> str:
    words = None
    if hasattr(kind, "_sa_class_manager"):
        # SQLAlchemy's objects need no base of its own, and some are dataclasses besides.
        words = _REFUSED["peewee.Model"]
    for base in kind.__mro__:
        words = words or _REFUSED.get(f"{base.__module__}.{base.__qualname__}")
    return f"{words[0]} cannot be stored; {words[1]}" if words else ""


# ------------------------------------------------------------------ from JSON


def untag(value: Any) -> Any:
    """What `tag` was given; raises Unfit for a broken tag and UnknownTag for a new one."""
    kind = type(value)
    if kind is list:
        return [untag(item) for item in value]
    if kind is not dict:
        return value
    if _MARK in value:
        return _read(value)
    return {key: untag(item) for key, item in value.items()}


def _read(value: dict[str, Any]) -> Any:
    name = value[_MARK]
    if type(name) is not str or value.keys() != {_MARK, "v"}:
        raise Unfit("a tagged value has a key ~ with a name, a key v, and no other")
    if name not in _READERS:
        raise UnknownTag(f"the tag {name[:40]!r} is not known here")
    content, (kind, reader) = value["v"], _READERS[name]
    if type(content) is not kind:
        raise Unfit(f"the tag {name!r} needs a {kind.__name__}, not a {type(content).__name__}")
    try:
        return reader(content)
    except (ValueError, TypeError, ArithmeticError, KeyError) as exc:
        raise Unfit(f"the tag {name!r} cannot be read: {exc!s:.80}") from exc


def _read_int(text: str) -> int:
    if not _HEX.match(text):
        raise ValueError("not a hexadecimal number")
    return int(text, 16)


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
    "set": (list, lambda items: set(map(untag, items))),
    "frozenset": (list, lambda items: frozenset(map(untag, items))),
    "map": (list, lambda pairs: {untag(key): untag(item) for key, item in pairs}),
}
TAGS: Final = tuple(_READERS)
