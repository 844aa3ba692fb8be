"""Interrupts of tasks while a logging handler has its lock: deferred."""

from __future__ import annotations

import logging

from forebay.deferred_interrupts import uninterrupted


def defer_interrupts_in_logging() -> None:
    """Defer interrupts while a logging handler has its lock, in a process that interrupts tasks.

    A task that is stopped in the middle of a log line would keep that lock for ever, and every thread of the
    worker that logs would wait for it. `Logger.handle` calls all handlers, those of the program too, so it
    is wrapped for the whole process. Once is enough.
    """
    handle = logging.Logger.handle
    if not hasattr(handle, "__wrapped__"):
        logging.Logger.handle = uninterrupted(handle)  # type: ignore[method-assign]
