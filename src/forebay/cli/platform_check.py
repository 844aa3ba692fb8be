"""Platform check of commands that need POSIX."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from forebay.errors import ConfigError

P = ParamSpec("P")


def not_on_windows(func: Callable[P, None]) -> Callable[P, None]:
    """Refuse a command on platforms without signals, fork and process groups."""

    @wraps(func)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        if not (hasattr(os, "fork") and hasattr(signal, "SIGHUP")):
            raise ConfigError(
                f"`forebay {func.__name__}` does not run on Windows: run it in a container, or use "
                "app.run_worker() inside your program (docs/support.md)"
            )
        func(*args, **kwargs)

    return checked
