"""Mapping between structs and gRPC messages: fields, decoding and encoding.

The rules are few, so tools/proto.py generates the .proto file by them. Instants are
`google.protobuf.Timestamp`, durations are seconds, and enumerations are strings as over HTTP. A field of any
JSON value is JSON text and has a name that ends in `_json`: a number in `google.protobuf.Value` is a double,
which would lose the last digits of a 64-bit id.
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
from forebay.service.schema.job_claims import OutcomeRequest
from forebay.service.schema.producer_jobs import DependencyRequest, EnqueueRequest
from forebay.service.schema.queues import QueueSettingsRequest

WITHOUT: Final = "without"
_NAMES: Final[Mapping[type, str]] = {
    DependencyRequest: "Dependency",
    EnqueueRequest: "NewJob",
    OutcomeRequest: "Outcome",
    QueueSettingsRequest: "QueueSettings",
}


class FieldKind(Enum):
    """Kind of a field's values."""

    TEXT = auto()
    INTEGER = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    TIMESTAMP = auto()
    JSON = auto()
    MESSAGE = auto()


class MessageField(NamedTuple):
    """Field of a struct, and of its message."""

    name: str
    kind: FieldKind
    struct_type: type[msgspec.Struct] | None = None
    is_list: bool = False
    is_map: bool = False
    is_optional: bool = False  # an unset field differs from an empty one
    is_nullable: bool = False  # null differs from both
    values: tuple[str, ...] = ()
    default: object = None

    @property
    def wire(self) -> str:
        return f"{self.name}_json" if self.kind is FieldKind.JSON else self.name


class MessageMapping:
    """Mapping of a struct to a message."""

    def __init__(self, struct_type: type[msgspec.Struct]) -> None:
        self.struct_type = struct_type
        self.fields: tuple[MessageField, ...] = _build_fields(struct_type)
        self.by_wire: dict[str, MessageField] = {field.wire: field for field in self.fields}
        self.nullable: set[str] = {field.name for field in self.fields if field.is_nullable}

    def read(self, message: Any) -> dict[str, Any]:
        """Return the fields of a message as msgspec converts them; raises InvalidRequest."""
        values: dict[str, Any] = {}
        for descriptor, value in message.ListFields():
            field = self.by_wire.get(descriptor.name)
            if field is not None:
                values[field.name] = _read(field, value)
        for name in getattr(message, WITHOUT) if self.nullable else ():
            if name not in self.nullable or name in values:
                raise InvalidRequest(f"{name!r:.100} cannot be null here - at `$.{WITHOUT}`")
            values[name] = None
        return values

    def write(self, struct: msgspec.Struct, message: Any) -> None:
        """Fill an empty message from a struct."""
        for field in self.fields:
            value = getattr(struct, field.name)
            if value is not None or (field.kind is FieldKind.JSON and not field.is_optional):
                _write(field, value, message)


@cache
def mapping_of(struct_type: type[msgspec.Struct]) -> MessageMapping:
    """Return the mapping of a struct type; it is built once."""
    return MessageMapping(struct_type)


def message_name(struct_type: type[msgspec.Struct]) -> str:
    """Return the name of a struct's message."""
    return _NAMES.get(struct_type) or struct_type.__name__.removesuffix("View")


# Decoding and encoding


def _read(field: MessageField, value: Any) -> Any:
    if field.is_map:
        return dict(value)
    if field.is_list:
        return [_read_value(field, item) for item in value]
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
    name = field.wire
    if field.is_map:
        getattr(message, name).update(value)
    elif field.kind in (FieldKind.MESSAGE, FieldKind.TIMESTAMP):
        inner = getattr(message, name)
        if not field.is_list:
            inner.SetInParent()
        for item in value if field.is_list else (value,):
            _fill(field, item, inner.add() if field.is_list else inner)
    elif field.is_list:
        getattr(message, name).extend(value)
    elif field.kind is FieldKind.JSON:
        setattr(message, name, msgspec.json.encode(value).decode())
    else:
        setattr(message, name, value.value if isinstance(value, Enum) else value)


def _fill(field: MessageField, value: Any, inner: Any) -> None:
    if field.struct_type is None:
        inner.FromDatetime(value)
    else:
        mapping_of(field.struct_type).write(value, inner)


# Fields of structs


def _build_fields(struct_type: type[msgspec.Struct]) -> tuple[MessageField, ...]:
    info = inspect.type_info(struct_type)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - of a struct
    own = struct_type.__annotations__
    # Its own fields before inherited ones, so that an id comes first.
    ordered = sorted(info.fields, key=lambda field: field.name not in own)
    return tuple(_build_field(field) for field in ordered)


def _build_field(info: inspect.Field) -> MessageField:
    kind, is_nullable = _without_none(info.type)
    has_default = not info.required and info.default is not NODEFAULT
    is_unset = not info.required and info.default is NODEFAULT and info.default_factory is NODEFAULT
    field = _describe_field(info.name, kind)
    if field.is_list or field.is_map or isinstance(kind, inspect.AnyType):
        return field
    empty = {FieldKind.TEXT: "", FieldKind.INTEGER: 0, FieldKind.NUMBER: 0, FieldKind.BOOLEAN: False}.get(
        field.kind, NODEFAULT
    )
    is_empty = has_default and type(info.default) is type(empty) and info.default == empty
    return field._replace(
        is_optional=(not info.required and not is_empty) or is_nullable,
        is_nullable=is_nullable and (is_unset or (has_default and info.default is not None)),
        default=None if not has_default or is_empty else info.default,
    )


def _without_none(kind: inspect.Type) -> tuple[inspect.Type, bool]:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        [inner] = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        return _without_none(inner)[0], True
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
            return MessageField(name, FieldKind.TEXT, values=tuple(member.value for member in kind.cls))
        case inspect.LiteralType():
            return MessageField(name, FieldKind.TEXT, values=tuple(str(value) for value in kind.values))
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
