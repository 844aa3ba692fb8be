"""Shapes as messages: which field of a message holds what, how it is read and how it is written.

The rules are few, so that the .proto file is made by them (tools/proto.py) and nothing is written twice:
instants are `google.protobuf.Timestamp`, lengths are seconds, states and other fixed words are strings as
over HTTP, and what may be any JSON value is JSON text in a field whose name ends in `_json`: a number in a
`google.protobuf.MetricTerm` is a double, which would take the last digits from an id of 64 bits.
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

from forebay.service.schema.base import InvalidRequest
from forebay.service.schema.claims import OutcomeRequest
from forebay.service.schema.jobs import DependencyRequest, EnqueueRequest
from forebay.service.schema.queues import QueueSettingsRequest

WITHOUT: Final = "without"
_NAMES: Final[Mapping[type, str]] = {
    DependencyRequest: "Dependency",
    EnqueueRequest: "NewJob",
    OutcomeRequest: "Outcome",
    QueueSettingsRequest: "QueueSettings",
}


class FieldKind(Enum):
    """What a field holds."""

    TEXT = auto()
    INTEGER = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    TIMESTAMP = auto()
    JSON = auto()
    MESSAGE = auto()


class MessageField(NamedTuple):
    """A field of a shape, and of its message."""

    name: str
    kind: FieldKind
    struct_type: type[msgspec.Struct] | None = None
    is_list: bool = False
    is_map: bool = False
    is_optional: bool = False  # one that is not there is another thing than an empty one
    is_nullable: bool = False  # null is a third thing
    values: tuple[str, ...] = ()
    default: object = None

    @property
    def wire(self) -> str:
        return f"{self.name}_json" if self.kind is FieldKind.JSON else self.name


class MessageMapping:
    """A shape as a message."""

    def __init__(self, struct_type: type[msgspec.Struct]) -> None:
        self.struct_type = struct_type
        self.fields: tuple[MessageField, ...] = _build_fields(struct_type)
        self.by_wire: dict[str, MessageField] = {field.wire: field for field in self.fields}
        self.nullable: set[str] = {field.name for field in self.fields if field.is_nullable}

    def read(self, message: Any) -> dict[str, Any]:
        """What is said in a message, for msgspec to make the shape of; raises Unreadable."""
        found: dict[str, Any] = {}
        for descriptor, value in message.ListFields():
            field = self.by_wire.get(descriptor.name)
            if field is not None:
                found[field.name] = _read(field, value)
        for name in getattr(message, WITHOUT) if self.nullable else ():
            if name not in self.nullable or name in found:
                raise InvalidRequest(f"{name!r:.100} cannot be taken away here - at `$.{WITHOUT}`")
            found[name] = None
        return found

    def write(self, answer: msgspec.Struct, message: Any) -> None:
        """Put an answer into its message, which is empty."""
        for field in self.fields:
            value = getattr(answer, field.name)
            if value is not None or (field.kind is FieldKind.JSON and not field.is_optional):
                _write(field, value, message)


@cache
def mapping_of(struct_type: type[msgspec.Struct]) -> MessageMapping:
    """The form of a shape, worked out once."""
    return MessageMapping(struct_type)


def message_name(struct_type: type[msgspec.Struct]) -> str:
    """What the message of a shape is called."""
    return _NAMES.get(struct_type) or struct_type.__name__.removesuffix("View")


# Reading and writing


def _read(field: MessageField, value: Any) -> Any:
    if field.is_map:
        return dict(value)
    if field.is_list:
        return [_read_value(field, one) for one in value]
    return _read_value(field, value)


def _read_value(field: MessageField, value: Any) -> Any:
    try:
        match field.kind:
            case FieldKind.MESSAGE if field.struct_type is not None:
                return mapping_of(field.struct_type).read(value)
            case FieldKind.JSON:
                return msgspec.json.decode(value)
            case FieldKind.TIMESTAMP:
                return value.ToDatetime(tzinfo=UTC)
            case FieldKind.NUMBER if not isfinite(value):
                raise ValueError("this is not a number")
            case _:
                return value
    except (ValueError, OverflowError, RecursionError) as exc:  # of msgspec and of protobuf too
        raise InvalidRequest(f"{exc} - at `$.{field.wire}`") from exc


def _write(field: MessageField, value: Any, message: Any) -> None:
    place = field.wire
    if field.is_map:
        getattr(message, place).update(value)
    elif field.kind in (FieldKind.MESSAGE, FieldKind.TIMESTAMP):
        inner = getattr(message, place)
        if not field.is_list:
            inner.SetInParent()
        for one in value if field.is_list else (value,):
            _fill(field, one, inner.add() if field.is_list else inner)
    elif field.is_list:
        getattr(message, place).extend(value)
    elif field.kind is FieldKind.JSON:
        setattr(message, place, msgspec.json.encode(value).decode())
    else:
        setattr(message, place, value.value if isinstance(value, Enum) else value)


def _fill(field: MessageField, value: Any, inner: Any) -> None:
    if field.struct_type is None:
        inner.FromDatetime(value)
    else:
        mapping_of(field.struct_type).write(value, inner)


# What a shape holds


def _build_fields(struct_type: type[msgspec.Struct]) -> tuple[MessageField, ...]:
    described = inspect.type_info(struct_type)
    assert isinstance(described, inspect.StructType)  # noqa: S101 - a shape is one
    own = struct_type.__annotations__
    # Its own before what it has from others: an id comes first.
    ordered = sorted(described.fields, key=lambda one: one.name not in own)
    return tuple(_build_field(one) for one in ordered)


def _build_field(info: inspect.Field) -> MessageField:
    kind, is_nullable = _without_none(info.type)
    has_default = not info.required and info.default is not NODEFAULT
    is_unset = not info.required and info.default is NODEFAULT and info.default_factory is NODEFAULT
    found = _describe_field(info.name, kind)
    if found.is_list or found.is_map or isinstance(kind, inspect.AnyType):
        return found
    empty = {FieldKind.TEXT: "", FieldKind.INTEGER: 0, FieldKind.NUMBER: 0, FieldKind.BOOLEAN: False}.get(
        found.kind, NODEFAULT
    )
    is_empty = has_default and type(info.default) is type(empty) and info.default == empty
    return found._replace(
        is_optional=(not info.required and not is_empty) or is_nullable,
        is_nullable=is_nullable and (is_unset or (has_default and info.default is not None)),
        default=None if not has_default or is_empty else info.default,
    )


def _without_none(kind: inspect.Type) -> tuple[inspect.Type, bool]:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        [left] = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return _without_none(left)[0], True
    return kind, False


def _describe_field(name: str, kind: inspect.Type) -> MessageField:
    match kind:
        case inspect.StructType():
            return MessageField(name, FieldKind.MESSAGE, kind.cls)
        case inspect.ListType():
            item, has_nulls = _without_none(kind.item_type)
            return (
                MessageField(name, FieldKind.JSON) if _is_free(item) or has_nulls else _list_field(name, item)
            )
        case inspect.DictType():
            return (
                MessageField(name, FieldKind.JSON)
                if _is_free(kind.value_type)
                else _map_field(name, kind.value_type)
            )
        case inspect.EnumType():
            return MessageField(name, FieldKind.TEXT, values=tuple(one.value for one in kind.cls))
        case inspect.LiteralType():
            return MessageField(name, FieldKind.TEXT, values=tuple(str(one) for one in kind.values))
        case _:
            return MessageField(name, _SCALAR_KINDS[type(kind)])


def _list_field(name: str, item: inspect.Type) -> MessageField:
    return _describe_field(name, item)._replace(is_list=True)


def _map_field(name: str, value: inspect.Type) -> MessageField:
    return _describe_field(name, _without_none(value)[0])._replace(is_map=True)


def _is_free(kind: inspect.Type) -> bool:
    return isinstance(kind, (inspect.AnyType, inspect.ListType, inspect.DictType))


_SCALAR_KINDS: Final[Mapping[type[inspect.Type], FieldKind]] = {
    inspect.AnyType: FieldKind.JSON,
    inspect.StrType: FieldKind.TEXT,
    inspect.IntType: FieldKind.INTEGER,
    inspect.FloatType: FieldKind.NUMBER,
    inspect.BoolType: FieldKind.BOOLEAN,
    inspect.DateTimeType: FieldKind.TIMESTAMP,
}
