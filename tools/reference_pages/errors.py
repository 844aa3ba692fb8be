"""docs/reference/errors.md: every error, its remedy, its HTTP status and its exit status."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import forebay
from forebay import errors
from forebay.cli.errors import status_of
from forebay.errors import ForebayError
from forebay.service.problem_details import INTERNAL, kind_of
from tools.reference_pages.markdown import code, prose, table

HEAD: Final = """# Errors

Made by `make reference` from `forebay.errors`. `ForebayError` is the root of all that Forebay raises:
catch it to catch everything. Messages are for people and may change; classes and their attributes are
promised.

*HTTP* is the status and the code of the [problem](http.md#problems) in the answer of a service, *status* the
[exit status](cli.md#status) of a command.
"""
SIGNALS: Final = """## Raised by your tasks

They set the outcome of the attempt. They are no `ForebayError`s.
[Retries](../guide/retries.md) shows them at work.
"""
_LINE: Final = re.compile(r"^ *([A-Z]\w+)(?: {2,}(\S.*))?$")


def page() -> str:
    return "\n".join([HEAD, *_tree(), *_errors(), SIGNALS, *_signals()]).rstrip() + "\n"


def _remedies() -> dict[str, str]:
    """Return the remedy by class name, from the tree at the top of the module."""
    found = (_LINE.match(line) for line in (errors.__doc__ or "").splitlines())
    return {line[1]: line[2] or "" for line in found if line}


def _classes() -> list[type[Exception]]:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    order = list(_remedies())
    missing = [kind.__name__ for kind in kinds if kind.__name__ not in order]
    if missing:
        raise ValueError(f"the tree in forebay/errors.py does not name {', '.join(missing)}")
    return sorted(kinds, key=lambda kind: order.index(kind.__name__))


def _tree() -> Iterator[str]:
    yield "## All of them\n"
    rows = []
    for kind in _classes():
        if issubclass(kind, ForebayError):
            # Without its attributes: only its class is read.
            error = kind.__new__(kind)
            problem = kind_of(error)
            http = "" if problem is INTERNAL else f"{problem.status} {code(problem.code)}"
            rows.append((f"[{kind.__name__}](#{kind.__name__.lower()})", _remedies()[kind.__name__], http,
                         str(int(status_of(error)))))  # fmt: skip
    yield from table(("error", "remedy", "HTTP", "status"), rows)


def _errors() -> Iterator[str]:
    for kind in _classes():
        if issubclass(kind, ForebayError):
            yield from _describe(kind)


def _signals() -> Iterator[str]:
    for kind in _classes():
        if not issubclass(kind, ForebayError):
            yield from _describe(kind)


def _describe(kind: type[Exception]) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    place = "forebay" if kind.__name__ in forebay.__all__ else "forebay.errors"
    bases = ", ".join(code(base.__name__) for base in kind.__bases__)
    yield f"`from {place} import {kind.__name__}`; a kind of {bases}.\n"
    yield f"{prose(kind.__doc__)}\n"
    remedy = _remedies()[kind.__name__]
    if remedy and issubclass(kind, ForebayError):
        yield f"Remedy: {remedy}.\n"
    if "__init__" in vars(kind):
        yield f"Made as `{kind.__name__}{_signature(kind)}`.\n"


def _signature(kind: type[Exception]) -> str:
    return str(inspect.signature(kind)).replace("'", "").removesuffix(" -> None")
