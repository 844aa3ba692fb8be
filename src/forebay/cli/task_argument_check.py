"""Type check of task arguments on the command line: a typed word is text, unless it is given as JSON."""

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
    """Raise InvalidJob for text where the task has an int, a float or a bool.

    The arguments must match the signature. Other annotations are not checked: a task may build its date or
    its path from text.
    """
    signature = inspect.signature(task.func)
    for name, sign, value in _bind_parameters(signature, args, kwargs):
        parameter = signature.parameters.get(name) or _last_parameter(signature)
        kind = _numeric_type(parameter.annotation)
        if kind and isinstance(value, str):
            raise InvalidJob(
                f"{name} of {task.name} is annotated {kind}, and {value!r} is text; "
                f"write {sign}:={_json_hint(value, kind)}"
            )


def _bind_parameters(
    signature: inspect.Signature, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """Yield the parameter, the written name and the value of each argument."""
    named_only = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    positional = [
        parameter.name for parameter in signature.parameters.values() if parameter.kind not in named_only
    ]
    for index, value in enumerate(args):
        # Arguments beyond the last positional parameter belong to it: it is *args.
        yield positional[min(index, len(positional) - 1)], "", value
    for name, value in kwargs.items():
        yield name, name, value


def _last_parameter(signature: inspect.Signature) -> inspect.Parameter:
    """Return the parameter that takes unknown names, **kwargs."""
    return list(signature.parameters.values())[-1]


def _numeric_type(annotation: Any) -> str:
    """Return int, float or bool, also of an optional one; empty for any other annotation."""
    names = set(_type_names(annotation)) - _NONE_NAMES
    return next(iter(names)) if len(names) == 1 and names <= set(_KINDS) else ""


def _type_names(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, str):
        # Compared as text: resolving it may need imports that exist only for type checkers.
        yield from (name.strip() for name in annotation.split("|"))
    elif get_origin(annotation) in (Union, UnionType):
        for inner in get_args(annotation):
            yield from _type_names(inner)
    else:
        yield getattr(annotation, "__name__", "") or str(annotation)


def _json_hint(text: str, kind: str) -> str:
    """Return the text if it is JSON of this kind, else the word JSON."""
    try:
        msgspec.json.decode(text, type=_KINDS[kind])
    except msgspec.DecodeError:
        return "JSON"
    return text
