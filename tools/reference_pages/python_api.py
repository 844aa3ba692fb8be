"""docs/reference/python.md: signatures and descriptions of all promised names, from the code itself.

The promised names are those of `forebay.__all__` and of the table in docs/reference/api.md.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import Any, Final

import msgspec

import forebay
from forebay.app.alerts import Alerts
from forebay.app.dead_letters import DeadLetters
from forebay.app.limits import Limits
from forebay.app.schedules import Schedules
from forebay.app.workflow import Workflow, WorkflowHandle
from tools.reference_pages.markdown import anchor, code, prose, table

HEAD: Final = """# Python API

Made by `make reference` from the code: the [promised names](api.md) with their signatures. That page
has the purpose and the errors of each in short. A method whose name ends in `_async` does the same for
coroutines as the one without, and is listed with it.
"""
_ROW: Final = re.compile(r"^\| `(forebay\.[\w.]+)` \| ([^|]+) \|", re.MULTILINE)
# Reached through a Forebay, and promised as a part of it.
_PARTS: Final = (Schedules, Workflow, WorkflowHandle, Limits, Alerts, DeadLetters)
# Parts of promised objects that are not promised.
HIDDEN: Final[dict[str, frozenset[str]]] = {
    "Forebay": frozenset({"clock"}),
    "Consumer": frozenset({"after_fork"}),
    "EmbeddedUser": frozenset({"key"}),
    "JobContext": frozenset({
        "client", "follow_ups", "is_completed_in_tx", "mark_cancelled", "mark_lease_in_doubt",
        "mark_lease_lost", "mark_lease_regained", "mark_past_soft_timeout", "mark_renewed", "progress_sink",
    }),
}  # fmt: skip
_LONGEST: Final = 60


def page(promised: str) -> str:
    """The whole page; `promised` is the text of api.md."""
    modules = _modules(promised)
    lines = [HEAD, *_contents(modules)]
    for module, names in modules.items():
        lines += [f"## `{module}`\n"]
        for name, thing in names.items():
            lines += _describe(name, thing)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _modules(promised: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"forebay": {}}
    for name in forebay.__all__:
        thing = getattr(forebay, name)
        if not (inspect.isclass(thing) and issubclass(thing, Exception)) and name != "__version__":
            found["forebay"][name] = thing
    for module, cell in _ROW.findall(promised):
        for name in re.findall(r"`(\w+)`", cell):
            found.setdefault(module, {})[name] = getattr(import_module(module), name)
    for part in _PARTS:
        found.setdefault(part.__module__, {})[part.__name__] = part
    return found


def _contents(modules: dict[str, dict[str, Any]]) -> Iterator[str]:
    rows = [
        (code(module), ", ".join(f"[{name}](#{anchor(name)})" for name in names))
        for module, names in modules.items()
    ]
    yield from table(("module", "names"), rows)
    yield "Errors and signals have [a page of their own](errors.md).\n"


def _describe(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not inspect.isclass(thing):
        yield from _function(name, thing)
    elif issubclass(thing, Enum):
        yield f"{prose(thing.__doc__)}\n"
        yield f"One of {', '.join(code(one.value) for one in thing)}.\n"
    elif issubclass(thing, msgspec.Struct):
        yield from _record(thing)
    else:
        yield from _class(name, thing)


def _function(name: str, thing: Any) -> Iterator[str]:
    if callable(thing):
        yield f"{code(name + signature(thing))}\n"
        yield f"{prose(thing.__doc__)}\n"
    else:
        yield f"{code(type(thing).__name__)}: {', '.join(code(one) for one in thing)}.\n"


def _record(thing: type[msgspec.Struct]) -> Iterator[str]:
    yield f"{prose(thing.__doc__)}\n"
    rows = [
        (code(field.name), code(_type(thing, field.name)), _default(field))
        for field in msgspec.structs.fields(thing)
    ]
    if rows:
        yield from table(("field", "type", "default"), rows)
    yield from _members(thing, {field for field in thing.__struct_fields__})


def _type(thing: type[msgspec.Struct], field: str) -> str:
    owner = next(kind for kind in thing.__mro__ if field in vars(kind).get("__annotations__", {}))
    return str(vars(owner)["__annotations__"][field])


def _default(field: Any) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        # Other factories return something else each time: an id, the time.
        is_empty = field.default_factory in (list, dict, set, tuple)
        return code(_short(field.default_factory())) if is_empty else "made for each"
    return "" if field.default is msgspec.NODEFAULT else code(_short(field.default))


def _short(value: object) -> str:
    shown = str(value.value) if isinstance(value, Enum) else repr(value)
    return shown if len(shown) <= _LONGEST else f"{type(value).__name__}(...)"


def _class(name: str, thing: type) -> Iterator[str]:
    if "__init__" in vars(thing) and name in (
        "Forebay",
        "Buffer",
        "Trial",
        "TaskQueue",
        "WorkQueue",
        "TaskService",
    ):
        yield f"{code(name + signature(thing))}\n"
    yield f"{prose(thing.__doc__)}\n"
    yield from _members(thing, set())


def _members(thing: type, known: set[str]) -> Iterator[str]:
    """Yield the methods in the order of the code, each with its twin for coroutines."""
    hidden = HIDDEN.get(thing.__name__, frozenset()) | known
    own = dict(_public(thing))
    for name, member in own.items():
        if name in hidden or (name.endswith("_async") and name.removesuffix("_async") in own):
            continue
        function = inspect.unwrap(getattr(member, "__func__", member))
        if isinstance(member, property):
            yield f"#### `{thing.__name__}.{name}`\n"
            yield f"{prose(member.fget.__doc__)}\n"
        elif inspect.isfunction(function):
            twin = f"; `{name}_async` for coroutines" if f"{name}_async" in own else ""
            yield f"#### `{thing.__name__}.{name}`\n"
            yield f"`{name}{signature(function, is_method=True)}`{twin}\n"
            yield f"{prose(function.__doc__)}\n"


def _public(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a class and of its bases in this package."""
    seen: set[str] = set()
    for kind in thing.__mro__:
        if kind.__module__.split(".")[0] != "forebay":
            continue
        for name, member in vars(kind).items():
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, member


def signature(thing: Any, *, is_method: bool = False) -> str:
    """As it is written: annotations are texts in this project."""
    found = inspect.signature(thing)
    parameters = list(found.parameters.values())
    if is_method and parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    elif inspect.isclass(thing):
        hidden = HIDDEN.get(thing.__name__, frozenset())
        parameters = [one for one in parameters if one.name not in hidden]
        found = found.replace(return_annotation=inspect.Signature.empty)
    # What a default is shown as must not name a place in memory.
    plain = [
        one.replace(default=_Shown(_short(one.default)))
        if one.default is not inspect.Parameter.empty
        else one
        for one in parameters
    ]
    return re.sub(r"'([^']*)'", r"\1", str(found.replace(parameters=plain))).replace("`", "")


class _Shown:
    """A default as it shall be shown."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("'", '"')

    def __repr__(self) -> str:
        return self._text
