"""Check of arguments against the signature of a task's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from forebay.errors import ConfigError, PayloadError


class SignatureCheck:
    """Check of arguments against a function's signature, with a fast path for the common kind of function."""

    def __init__(self, func: Callable[..., Any], task: str) -> None:
        self._task = task
        try:
            self._signature = inspect.signature(func)
        except (ValueError, TypeError) as exc:  # some built-in functions have no readable signature
            raise ConfigError(
                f"the arguments of {func!r:.60} cannot be read; wrap it in a function of your own"
            ) from exc
        parameters = self._signature.parameters.values()
        common = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self._has_fast_path = all(parameter.kind is common for parameter in parameters)
        self._names = tuple(self._signature.parameters)
        self._required = frozenset(p.name for p in parameters if p.default is inspect.Parameter.empty)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise PayloadError if the function cannot be called like this."""
        if self._has_fast_path and self._fits(args, kwargs):
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise PayloadError(f"task {self._task} cannot be called like this: {exc}", field="args") from exc

    def _fits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not kwargs:
            return len(self._required) <= len(args) <= len(self._names)
        positional = self._names[: len(args)]
        if len(args) > len(self._names) or not self._required.issubset((*positional, *kwargs)):
            return False
        return kwargs.keys() <= set(self._names[len(args) :])
