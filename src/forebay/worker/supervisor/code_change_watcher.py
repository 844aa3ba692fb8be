"""Detection of changed code, for development."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any

from forebay.errors import ConfigError

logger: logging.Logger = logging.getLogger(__name__)


class CodeChangeWatcher:
    """Watches the Python files below a folder, on a thread of its own, and calls `wake` when one changes."""

    def __init__(self, folder: Path, wake: Callable[[], object]) -> None:
        self._folder = folder
        self._wake = wake
        self._watchfiles = _import_watchfiles()
        self._has_changed = Event()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="forebay-code-changes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def has_changed(self) -> bool:
        """Return whether a file has changed since the last call."""
        changed = self._has_changed.is_set()
        self._has_changed.clear()
        return changed

    def stop(self) -> None:
        """Stop watching; stopping twice, or before the start, is fine."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        kinds = self._watchfiles.PythonFilter()
        for changes in self._watchfiles.watch(self._folder, watch_filter=kinds, stop_event=self._stop):
            logger.info("code has changed: %s", ", ".join(sorted({Path(path).name for _, path in changes})))
            self._has_changed.set()
            self._wake()


def _import_watchfiles() -> Any:
    try:
        return import_module("watchfiles")
    except ImportError as exc:
        raise ConfigError("--reload needs watchfiles: pip install 'forebay[reload]'") from exc
