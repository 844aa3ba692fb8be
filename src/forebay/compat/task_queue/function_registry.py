"""Functions of jobs by name: module, colon, name inside it. A job stores nothing else of its function."""

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
from forebay.deferred_interrupts import uninterrupted
from forebay.errors import InvalidJob

# Errors that another attempt would only repeat. Other OSErrors may pass, such as ConnectionError and
# TimeoutError, and are tried again.
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
    """The function cannot be imported; the text is the reason."""


class FunctionCall(NamedTuple):
    """A function with the arguments of one call."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def bind_call(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> FunctionCall:
    """Return the call with the arguments of a `functools.partial`: these may even be called `priority`."""
    if not isinstance(func, partial):
        return FunctionCall(func, tuple(args), dict(kwargs))
    return bind_call(func.func, (*func.args, *args), {**func.keywords, **kwargs})


class FunctionRegistry:
    """The functions that one program knows, each a task of its app; thread-safe."""

    def __init__(self, app: Forebay, queue: str) -> None:
        self._app = app
        self._queue = queue
        self._lock = Lock()
        self._missing: dict[str, str] = {}
        self._quitting: dict[str, str] = {}

    def task(self, func: Callable[..., Any]) -> Task[..., Any]:
        """Return the task of this function; raise InvalidJob unless other programs can import it by name."""
        path = path_of(func)
        try:
            imported = _import_path(path)
        except _FunctionMissing as exc:
            raise InvalidJob(
                f"{path} cannot be imported, and a job stores only this name: {exc}", field="func"
            ) from exc
        if imported != func:
            raise InvalidJob(
                f"{path} is not the function that was given, and a job stores only this name; "
                "give the function that the module has under it, and not a method of an object",
                field="func",
            )
        return self._register(path, func)

    def import_function(self, path: str) -> bool:
        """Import a function if needed; return whether it is there. If not, `why_missing` has the reason."""
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
        """Return why the last import of this function failed; None if there was none."""
        return self._missing.get(path)

    def _import_once(self, path: str) -> Callable[..., Any]:
        # A module that ends the program would run completely with each try, so there is only one try.
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
        # Two threads may be the first to use a function; a second task of the same name is an error.
        with uninterrupted, self._lock:
            if path not in self._app.registry:
                make = self._app.task(
                    name=path, queue=self._queue, no_retry_for=NOT_RETRIED, retry_on_timeout=False
                )
                make(func)
            return self._app.registry[path]


def path_of(func: Callable[..., Any]) -> str:
    """Return the name by which a function can be imported; raise InvalidJob if it has none."""
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
    """Return the name by which other programs import the running program; None without a file."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return None if file is None else os.path.splitext(os.path.basename(file))[0]


def _import_path(path: str) -> Callable[..., Any]:
    """Return the function of this name, imported if needed; raise _FunctionMissing if there is none."""
    module, _, name = path.partition(":")
    if not name:
        raise _FunctionMissing("it is not a name of the form module:function")
    try:
        function: Any = reduce(getattr, name.split("."), _import_module(module))
    except (Exception, SystemExit) as exc:
        # The import runs code of the user, which may raise anything; the caller reports it as missing. A
        # module that is a program may end it with sys.exit. Interrupts from outside pass through.
        raise _FunctionMissing(f"{type(exc).__name__}: {exc}"[:MAX_CAUSE]) from exc
    if not callable(function):
        raise _FunctionMissing(f"it is not a function but {function!r:.60}")
    return function  # type: ignore[no-any-return]  # whatever can be called


def _import_module(name: str) -> Any:
    # The running program must not be imported again under its other name: it would start over.
    main: ModuleType = sys.modules["__main__"]
    return main if name == _main_name() else import_module(name)
