"""Shapes as messages: which field of a message holds what, how it is read and how it is written.

The rules are few, so that the .proto file is made by them (tools/proto.py) and nothing is written twice:
instants are `google.protobuf.Timestamp`, lengths are seconds, states and other fixed words are strings as
over HTTP, and what may be any JSON value is JSON text in a field whose name ends in `_json`: a number in a
`google.protobuf.Value` is a double, which would take the last digits from an id of 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from enum import Enum, auto
from functools import cache
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import NODEFAULT, inspect

from forebay.service.schema.consuming import EndingRequest
from forebay.service.schema.producing import EnqueueRequest
from forebay.service.schema.queues import SettingsRequest
from forebay.service.schema.unreadable import Unreadable

WITHOUT: Final = "without"
_NAMES: Final[Mapping[type, str]] = {
    EnqueueRequest: "NewJob",
    EndingRequest: "Ending",
    SettingsRequest: "QueueSettings",
}


class Kind(Enum):
    """What a field holds."""

    TEXT = auto()
    WHOLE = auto()
    NUMBER = auto()
    TRUTH = auto()
    MOMENT = auto()
    JSON = auto()
    MESSAGE = auto()


class Field(NamedTuple):
    """A field of a shape, and of its message."""

    name: str
    kind: Kind
    shape: type[msgspec.Struct] | None = None
    is_list: bool = False
    is_map: bool = False
    is_optional: bool = False  # one that is not there is another thing than an empty one
    is_nullable: bool = False  # null is a third thing
    values: tuple[str, ...] = ()
    default: object = None

    @property
    def wire(self) -> str:
        return f"{self.name}_json" if self.kind is Kind.JSON else self.name


class Form:
    """A shape as a message."""

    def __init__(self, shape: type[msgspec.Struct]) -> None:
        self.shape = shape
        self.fields: tuple[Field, ...] = _fields(shape)
        self.by_wire: dict[str, Field] = {field.wire: field for field in self.fields}
        self.nullable: set[str] = {field.name for field in self.fields if field.is_nullable}

    def read(self, message: Any) -> dict[str, Any]:
        """What is said in a message, for msgspec to make the shape of; raises Unreadable."""
        found: dict[str, Any] = {}
        for descriptor, value in message.ListFields():
            field = self.by_wire.get(descriptor.name)
            if field is not None:
                found[field.name] = _read(field, value)
        for name in message.without if self.nullable else ():
            if name not in self.nullable or name in found:
                raise Unreadable(f"{name!r:.100} cannot be taken away here - at `$.{WITHOUT}`")
            found[name] = None
        return found

    def write(self, answer: msgspec.Struct, message: Any) -> None:
        """Put an answer into its message, which is empty."""
        for field in self.fields:
            value = getattr(answer, field.name)
            if value is not None or (field.kind is Kind.JSON and not field.is_optional):
                _write(field, value, message)


@cache
def form_of(shape: type[msgspec.Struct]) -> Form:
    """The form of a shape, worked out once."""
    return Form(shape)


def message_name(shape: type[msgspec.Struct]) -> str:
    """What the message of a shape is called."""
    return _NAMES.get(shape) or shape.__name__.removesuffix("Shape")


# Reading and writing


def _read(field: Field, value: Any) -> Any:
    if field.is_map:
        return dict(value)
    if field.is_list:
        return [_read_one(field, one) for one in value]
    return _read_one(field, value)


def _read_one(field: Field, value: Any) -> Any:
    try:
        match field.kind:
            case Kind.MESSAGE if field.shape is not None:
                return form_of(field.shape).read(value)
            case Kind.JSON:
                return msgspec.json.decode(value)
            case Kind.MOMENT:
                return value.ToDatetime(tzinfo=UTC)
            case Kind.NUMBER if not isfinite(value):
                raise ValueError("this is not a number")
            case _:
                return value
    except (ValueError, OverflowError, RecursionError) as exc:  # of msgspec and of protobuf too
        raise Unreadable(f"{exc} - at `$.{field.wire}`") from exc


def _write(field: Field, value: Any, message: Any) -> None:
    place = field.wire
    if field.is_map:
        getattr(message, place).update(value)
    elif field.kind in (Kind.MESSAGE, Kind.MOMENT):
        inner = getattr(message, place)
        if not field.is_list:
            inner.SetInParent()
        for one in value if field.is_list else (value,):
            _fill(field, one, inner.add() if field.is_list else inner)
    elif field.is_list:
        getattr(message, place).extend(value)
    elif field.kind is Kind.JSON:
        setattr(message, place, msgspec.json.encode(value).decode())
    else:
        setattr(message, place, value.value if isinstance(value, Enum) else value)


def _fill(field: Field, value: Any, inner: Any) -> None:
    if field.shape is None:
        inner.FromDatetime(value)
    else:
        form_of(field.shape).write(value, inner)


# What a shape holds


def _fields(shape: type[msgspec.Struct]) -> tuple[Field, ...]:
    described = inspect.type_info(shape)
    assert isinstance(described, inspect.StructType)  # noqa: S101 - a shape is one
    own = shape.__annotations__
    # Its own before what it has from others: an id comes first.
    ordered = sorted(described.fields, key=lambda one: one.name not in own)
    return tuple(_field(one) for one in ordered)


def _field(one: inspect.Field) -> Field:
    kind, is_nullable = _without_none(one.type)
    has_default = not one.required and one.default is not NODEFAULT
    is_unset = not one.required and one.default is NODEFAULT and one.default_factory is NODEFAULT
    found = _described(one.name, kind)
    if found.is_list or found.is_map or isinstance(kind, inspect.AnyType):
        return found
    empty = {Kind.TEXT: "", Kind.WHOLE: 0, Kind.NUMBER: 0, Kind.TRUTH: False}.get(found.kind, NODEFAULT)
    is_empty = has_default and type(one.default) is type(empty) and one.default == empty
    return found._replace(
        is_optional=(not one.required and not is_empty) or is_nullable,
        is_nullable=is_nullable and (is_unset or (has_default and one.default is not None)),
        default=None if not has_default or is_empty else one.default,
    )


def _without_none(kind: inspect.Type) -> tuple[inspect.Type, bool]:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        [left] = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return _without_none(left)[0], True
    return kind, False


def _described(name: str, kind: inspect.Type) -> Field:
    match kind:
        case inspect.StructType():
            return Field(name, Kind.MESSAGE, kind.cls)
        case inspect.ListType():
            item, has_nulls = _without_none(kind.item_type)
            return Field(name, Kind.JSON) if _is_free(item) or has_nulls else _listed(name, item)
        case inspect.DictType():
            return Field(name, Kind.JSON) if _is_free(kind.value_type) else _mapped(name, kind.value_type)
        case inspect.EnumType():
            return Field(name, Kind.TEXT, values=tuple(one.value for one in kind.cls))
        case inspect.LiteralType():
            return Field(name, Kind.TEXT, values=tuple(str(one) for one in kind.values))
        case _:
            return Field(name, _PLAIN[type(kind)])


def _listed(name: str, item: inspect.Type) -> Field:
    return _described(name, item)._replace(is_list=True)


def _mapped(name: str, value: inspect.Type) -> Field:
    return _described(name, _without_none(value)[0])._replace(is_map=True)


def _is_free(kind: inspect.Type) -> bool:
    return isinstance(kind, (inspect.AnyType, inspect.ListType, inspect.DictType))


_PLAIN: Final[Mapping[type[inspect.Type], Kind]] = {
    inspect.AnyType: Kind.JSON,
    inspect.StrType: Kind.TEXT,
    inspect.IntType: Kind.WHOLE,
    inspect.FloatType: Kind.NUMBER,
    inspect.BoolType: Kind.TRUTH,
    inspect.DateTimeType: Kind.MOMENT,
}
