"""Registry of the apps of this process, for results and shared tasks without an app."""

from __future__ import annotations

from typing import Any, Final

# The apps of this process, the newest last; `Celery` registers them.
APPS: Final[list[Any]] = []
