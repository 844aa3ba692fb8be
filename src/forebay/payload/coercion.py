"""Coercion of stored values to the classes that a task's annotations name."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from itertools import chain, repeat
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Final, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from forebay.payload.codec import unstorable_error
from forebay.payload.typed_json import TypeMismatch, key_step

Coercer: TypeAlias = Callable[[Any], Any]
_Param: TypeAlias = inspect.Parameter
_POSITIONAL: Final = {_Param.POSITIONAL_ONLY, _Param.POSITIONAL_OR_KEYWORD}
_UNRESOLVED: Final = (NameError, AttributeError, TypeError, ValueError, SyntaxError)


class Coercion:
    """Converts stored values to the classes that a function's annotations name; created once for each task.

    Enums, dataclasses, Structs and named tuples are stored without their class. Parameters annotated with
    one, or with an optional, a union, a list, tuple, set or dict of them, get an instance. All other
    parameters get the stored value. An annotation that cannot be resolved counts as none.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self._hints = _hints_of(inspect.unwrap(func))
        self._positional: list[Coercer | None] = []
        self._by_keyword: dict[str, Coercer] = {}
        self._var_positional: Coercer | None = None
        self._var_keyword: Coercer | None = None
        for param in inspect.signature(func).parameters.values():
            self._add_parameter(param, _coercer_for(self._hints.get(param.name)))
        self._result_coercer = _coercer_for(self._hints.get("return"))
        self._is_idle = not any(
            [*self._positional, *self._by_keyword, self._var_positional, self._var_keyword]
        )

    def _add_parameter(self, param: _Param, coercer: Coercer | None) -> None:
        if coercer and param.default is None:
            coercer = partial(_as_one_of, [coercer], True, False)
        if param.kind is _Param.VAR_POSITIONAL:
            self._var_positional = coercer
        elif param.kind is _Param.VAR_KEYWORD:
            self._var_keyword = coercer
        elif param.kind in _POSITIONAL:
            self._positional.append(coercer)
        if coercer and param.kind in (_Param.POSITIONAL_OR_KEYWORD, _Param.KEYWORD_ONLY):
            self._by_keyword[param.name] = coercer

    def coerce_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments in the classes of the annotations; raise PayloadError for one that does not
        fit."""
        if self._is_idle:
            return args, kwargs
        root = "args"
        try:
            coercers = chain(self._positional, repeat(self._var_positional))
            positional = tuple(
                _coerce_at(f"[{n}]", coercer, arg)
                for n, (arg, coercer) in enumerate(zip(args, coercers))  # noqa: B905 - the second has no end
            )
            root = "kwargs"
            named = {
                name: _coerce_at(key_step(name), self._by_keyword.get(name, self._var_keyword), arg)
                for name, arg in kwargs.items()
            }
        except TypeMismatch as exc:
            raise unstorable_error(exc, root) from exc
        return positional, named

    def coerce_result(self, value: Any) -> Any:
        """Return a result in the class of the annotation; raise PayloadError if it does not fit."""
        try:
            return _coerce_at("", self._result_coercer, value)
        except TypeMismatch as exc:
            raise unstorable_error(exc, "result") from exc


def coerce_call(
    coercion: Coercion, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Coerce the decoded arguments of a task's function."""
    return coercion.coerce_arguments(args, kwargs)


def _coerce_at(step: str, coercer: Coercer | None, value: Any) -> Any:
    if coercer is None:
        return value
    try:
        return coercer(value)
    except TypeMismatch as exc:
        exc.steps.append(step)
        raise


def _hints_of(func: Any) -> dict[str, Any]:
    space = getattr(func, "__globals__", {})
    return {name: _resolve_hint(raw, space, {}) for name, raw in inspect.get_annotations(func).items()}


def _hints_of_class(cls: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        space = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        for name, raw in inspect.get_annotations(base).items():
            # The module's names win over those of the class: in `date: date = None` the class's own `date` is
            # the default.
            hints[name] = _resolve_hint(raw, dict(vars(base)), space)
    return hints


def _resolve_hint(raw: Any, outer: dict[str, Any], inner: dict[str, Any]) -> Any:
    # One at a time: a name that is imported for type checkers only must not affect the other hints.
    holder = SimpleNamespace(__annotations__={"hint": raw})
    try:
        return get_type_hints(holder, outer, inner)["hint"]
    except _UNRESOLVED:
        return None


def _coercer_for(hint: Any) -> Coercer | None:
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, NewType):
        return _coercer_for(hint.__supertype__)
    if origin in (Union, UnionType):
        return _coercer_for_union(inner)
    if isinstance(origin, type):
        return _coercer_for_class(origin) or _coercer_for_container(origin, inner)
    return _coercer_for_class(hint) if isinstance(hint, type) else None


def _coercer_for_class(cls: type) -> Coercer | None:
    if issubclass(cls, Enum):
        return partial(_as_member, cls)
    if issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls):
        return partial(_as_record, cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return partial(_as_named_tuple, cls)
    return None


def _coercer_for_container(origin: type, inner: tuple[Any, ...]) -> Coercer | None:
    coercers = [_coercer_for(hint) for hint in inner]
    if not any(coercers) or not issubclass(origin, Iterable):
        return None
    if issubclass(origin, Mapping):
        return partial(_as_dict, *coercers)
    if issubclass(origin, tuple) and inner[-1] is not ...:
        return partial(_as_tuple, coercers)
    return partial(_as_items, coercers[0])


def _coercer_for_union(members: tuple[Any, ...]) -> Coercer | None:
    coercers = [_coercer_for(member) for member in members]
    needed = [coercer for coercer in coercers if coercer]
    uncoerced = [member for member, coercer in zip(members, coercers, strict=True) if not coercer]
    is_open = any(member is not NoneType for member in uncoerced)
    return partial(_as_one_of, needed, NoneType in uncoerced, is_open) if needed else None


def _as_one_of(coercers: list[Coercer], takes_none: bool, is_open: bool, value: Any) -> Any:
    """Return the value in the first class that it fits; unchanged if the union has members that need no
    class."""
    if value is None and takes_none:
        return value
    failure = TypeMismatch("the value fits no member of the union")
    for coercer in coercers:
        try:
            return coercer(value)
        except TypeMismatch as exc:
            failure = exc
    if is_open:
        return value
    raise failure


def _as_items(coercer: Coercer | None, value: Any) -> Any:
    if type(value) not in (list, tuple, set, frozenset):
        raise TypeMismatch(f"several values are needed here, not a {type(value).__name__}")
    return type(value)(_coerce_at(f"[{index}]", coercer, item) for index, item in enumerate(value))


def _as_tuple(coercers: Sequence[Coercer | None], value: Any) -> Any:
    if type(value) not in (list, tuple) or len(value) != len(coercers):
        raise TypeMismatch(f"{len(coercers)} values are needed here, not {value!r:.60}")
    pairs = zip(coercers, value, strict=True)
    return type(value)(_coerce_at(f"[{index}]", coercer, item) for index, (coercer, item) in enumerate(pairs))


def _as_dict(key_coercer: Coercer | None, coercer: Coercer | None, value: Any) -> Any:
    if type(value) is not dict:
        raise TypeMismatch(f"a dict is needed here, not a {type(value).__name__}")
    return {
        _coerce_at(key_step(key), key_coercer, key): _coerce_at(key_step(key), coercer, item)
        for key, item in value.items()
    }


def _as_member(cls: type[Enum], value: Any) -> Enum:
    try:
        return cls(value)
    except (ValueError, TypeError):
        raise TypeMismatch(f"{value!r:.60} is not a value of {cls.__qualname__}") from None


def _as_named_tuple(cls: type, value: Any) -> Any:
    hints = _hints_of_class(cls)
    coercers = [_coercer_for(hints.get(name)) for name in vars(cls)["_fields"]]
    return value if isinstance(value, cls) else cls(*_as_tuple(coercers, value))


def _as_record(cls: type, value: Any) -> Any:
    if isinstance(value, cls):
        return value
    if type(value) is not dict:
        raise TypeMismatch(f"a dict is needed to make a {cls.__qualname__}, not a {type(value).__name__}")
    fields = _fields_of(cls)
    in_constructor: dict[str, Any] = {}
    afterwards: dict[str, Any] = {}
    for key, item in _without_tag(cls, value).items():
        if key not in fields:
            # It has a meaning for a later producer, so it is not dropped silently.
            raise TypeMismatch(f"{cls.__qualname__} has no field {key!r:.60}")
        name, coercer, is_init = fields[key]
        (in_constructor if is_init else afterwards)[name] = _coerce_at(f".{key}", coercer, item)
    try:
        record = cls(**in_constructor)
    except (TypeError, ValueError) as exc:
        raise TypeMismatch(f"a {cls.__qualname__} cannot be made of this: {exc}") from exc
    for name, item in afterwards.items():
        object.__setattr__(record, name, item)
    return record


def _without_tag(cls: type, value: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a Struct without its tag field."""
    config = cls.__struct_config__ if issubclass(cls, msgspec.Struct) else None
    if config is None or config.tag_field is None:
        return value
    if value.get(config.tag_field) != config.tag:
        raise TypeMismatch(f"the field {config.tag_field!r} is not {config.tag!r}")
    return {key: item for key, item in value.items() if key != config.tag_field}


@lru_cache(maxsize=256)
def _fields_of(cls: type) -> Mapping[str, tuple[str, Coercer | None, bool]]:
    """Return by the name in the payload: the name in the class, its coercer, whether the constructor takes
    it."""
    hints = _hints_of_class(cls)
    if issubclass(cls, msgspec.Struct):
        names = zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True)
        return {key: (name, _coercer_for(hints.get(name)), True) for key, name in names}
    fields = cls.__dataclass_fields__.values()  # type: ignore[attr-defined]  # `dataclasses.fields` does not take a type
    return {field.name: (field.name, _coercer_for(hints.get(field.name)), field.init) for field in fields}
