"""Words of a command line that a task wants as numbers: what is typed is a text until it says otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from forebay.errors import InvalidJob

_KINDS: Final = {"int": int, "float": float, "bool": bool}
_NONE_NAMES: Final = {"None", "NoneType"}


def check_texts(task: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise InvalidJob for a text in the place of an int, a float or a bool.

    The arguments must fit the signature. Other kinds of annotation are let alone: a task may well make its
    date or its path of a text.
    """
    signature = inspect.signature(task.func)
    for name, sign, value in _bind_parameters(signature, args, kwargs):
        parameter = signature.parameters.get(name) or _last_parameter(signature)
        kind = _numeric_type(parameter.annotation)
        if kind and isinstance(value, str):
            raise InvalidJob(
                f"{name} of {task.name} is annotated {kind}, and {value!r} is a text; "
                f"write {sign}:={_json_hint(value, kind)}"
            )


def _bind_parameters(
    signature: inspect.Signature, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """Every value with the name of its parameter, and what was written before its sign."""
    named_only = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    placed = [one.name for one in signature.parameters.values() if one.kind not in named_only]
    for place, value in enumerate(args):
        # Those that come behind all others belong to the last, which is *args.
        yield placed[min(place, len(placed) - 1)], "", value
    for name, value in kwargs.items():
        yield name, name, value


def _last_parameter(signature: inspect.Signature) -> inspect.Parameter:
    """The parameter that takes names nobody has mentioned, **kwargs."""
    return list(signature.parameters.values())[-1]


def _numeric_type(annotation: Any) -> str:
    """int, float or bool, perhaps with None beside it; empty for any other annotation."""
    names = set(_type_names(annotation)) - _NONE_NAMES
    return next(iter(names)) if len(names) == 1 and names <= set(_KINDS) else ""


def _type_names(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, str):
        # As it is written: to resolve it may need what is imported for type checkers alone.
        yield from (name.strip() for name in annotation.split("|"))
    elif get_origin(annotation) in (Union, UnionType):
        for inner in get_args(annotation):
            yield from _type_names(inner)
    else:
        yield getattr(annotation, "__name__", "") or str(annotation)


def _json_hint(text: str, kind: str) -> str:
    """The text if it is JSON of this kind, else a word for what to write there."""
    try:
        msgspec.json.decode(text, type=_KINDS[kind])
    except msgspec.DecodeError:
        return "JSON"
    return text
