"""Calls of third-party code inside a job: an exception there may cost spans or metrics, but no job."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from forebay.deferred_interrupts import uninterrupted


class SafeCalls:
    """Suppresses exceptions of the block, and logs the first one. Any thread may use it.

    Third-party code takes locks of its own (a span processor, an instrument), so it is not interrupted
    either.
    """

    def __init__(self, logger: logging.Logger, message: str) -> None:
        self._logger = logger
        self._message = message
        self._lock = Lock()
        self._is_logged = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with uninterrupted:
            try:
                yield
            except Exception:
                if self._is_first():
                    self._logger.exception(self._message)

    def _is_first(self) -> bool:
        with uninterrupted, self._lock:
            was_logged, self._is_logged = self._is_logged, True
        return not was_logged
