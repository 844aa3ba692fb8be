"""Functions as jobs name them: module, colon, name inside it. Nothing else of a function is stored."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, Final, NamedTuple

from forebay.app.app import Forebay
from forebay.app.task import Task
from forebay.errors import InvalidJob
from forebay.interrupts import uninterrupted

# Errors that another attempt would only repeat. Other OSErrors, ConnectionError and TimeoutError among them,
# may pass and are tried again.
NOT_RETRIED: Final[tuple[type[BaseException], ...]] = (
    TypeError,
    ValueError,
    AttributeError,
    KeyError,
    ImportError,
    SyntaxError,
    AssertionError,
    FileNotFoundError,
)


MAX_CAUSE: Final = 500


class _FunctionMissing(Exception):
    """There is no such function here; the text says why."""


class FunctionCall(NamedTuple):
    """A function with the arguments of one call."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def bind_call(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> FunctionCall:
    """The call, with what a `functools.partial` brings; that way an argument may be called `priority` too."""
    if not isinstance(func, partial):
        return FunctionCall(func, tuple(args), dict(kwargs))
    return bind_call(func.func, (*func.args, *args), {**func.keywords, **kwargs})


class FunctionRegistry:
    """The functions that one program knows, each a task of its app. May be used from several threads."""

    def __init__(self, app: Forebay, queue: str) -> None:
        self._app = app
        self._queue = queue
        self._lock = Lock()
        self._missing: dict[str, str] = {}
        self._quitting: dict[str, str] = {}

    def task(self, func: Callable[..., Any]) -> Task[..., Any]:
        """The task of this function; raises InvalidJob unless others can import it by its name."""
        path = path_of(func)
        try:
            found = _import_path(path)
        except _FunctionMissing as exc:
            raise InvalidJob(
                f"{path} cannot be imported, and a job stores only this name: {exc}", field="func"
            ) from exc
        if found != func:
            raise InvalidJob(
                f"{path} is not the function that was given, and a job stores only this name; "
                "give the function that the module has under it, and not a method of an object",
                field="func",
            )
        return self._register(path, func)

    def import_function(self, path: str) -> bool:
        """Whether there is such a function; it is imported if need be. If not, `why_missing` knows why."""
        if path in self._app.registry:
            return True
        try:
            func = self._import_once(path)
        except _FunctionMissing as exc:
            self._missing[path] = str(exc)
            return False
        self._missing.pop(path, None)
        self._register(path, func)
        return True

    def why_missing(self, path: str) -> str | None:
        """Why the last try to learn this function was in vain; None if there was none."""
        return self._missing.get(path)

    def _import_once(self, path: str) -> Callable[..., Any]:
        # A module that ends the program would do all its work again with each try, so there is only one.
        module = path.partition(":")[0]
        if module in self._quitting:
            raise _FunctionMissing(self._quitting[module])
        try:
            return _import_path(path)
        except _FunctionMissing as exc:
            if isinstance(exc.__cause__, SystemExit):
                self._quitting[module] = str(exc)
            raise

    def _register(self, path: str, func: Callable[..., Any]) -> Task[..., Any]:
        # Two threads may meet the same function for the first time; a second task of one name is an error.
        with uninterrupted, self._lock:
            if path not in self._app.registry:
                make = self._app.task(
                    name=path, queue=self._queue, no_retry_for=NOT_RETRIED, retry_on_timeout=False
                )
                make(func)
            return self._app.registry[path]


def path_of(func: Callable[..., Any]) -> str:
    """The name under which a function can be imported; raises InvalidJob for one that has none."""
    name: str | None = getattr(func, "__qualname__", None)
    if name is None:
        raise InvalidJob(f"func must be a function, not {func!r:.60}", field="func")
    if "<" in name:
        raise InvalidJob(
            f"{name} cannot be stored, because no other program could import it; "
            "write it as a function of its own at the top of a module, and pass what it needs as arguments",
            field="func",
        )
    if inspect.iscoroutinefunction(func):
        raise InvalidJob(
            f"{name} is a coroutine function, and these workers are threads; "
            "wrap it in a function that calls asyncio.run, or make it a task of Forebay",
            field="func",
        )
    module = func.__module__ if func.__module__ != "__main__" else _main_name()
    if module is None:
        raise InvalidJob(
            f"{name} was typed in, so no other program could import it; write it to a file", field="func"
        )
    return f"{module}:{name}"


def _main_name() -> str | None:
    """The name under which others import the program that runs; None where there is no file."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return None if file is None else os.path.splitext(os.path.basename(file))[0]


def _import_path(path: str) -> Callable[..., Any]:
    """The function of this name, imported if need be; raises _Missing if there is none here."""
    module, _, name = path.partition(":")
    if not name:
        raise _FunctionMissing("it is not a name of the form module:function")
    try:
        found: Any = reduce(getattr, name.split("."), _import_module(module))
    except (Exception, SystemExit) as exc:
        # Code of the user's own runs here and may raise anything; whoever asks says that it is missing. A
        # module that is a program may end it with sys.exit. What interrupts us from outside passes through.
        raise _FunctionMissing(f"{type(exc).__name__}: {exc}"[:MAX_CAUSE]) from exc
    if not callable(found):
        raise _FunctionMissing(f"it is not a function but {found!r:.60}")
    return found  # type: ignore[no-any-return]  # whatever can be called


def _import_module(name: str) -> Any:
    # The program that runs must not be imported a second time under its other name: it would start over.
    main: ModuleType = sys.modules["__main__"]
    return main if name == _main_name() else import_module(name)
