"""Signals to stop, for commands that run until one comes."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from forebay.worker.inbox import WakeSignal


@contextmanager
def collect_signals(wake_signal: WakeSignal) -> Iterator[deque[int]]:
    """The signals to stop that have come; each rings. Afterwards everything is as it was."""
    heard: deque[int] = deque()

    def hear(number: int, _: object) -> None:
        heard.append(number)
        wake_signal.set()

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, hear))
        yield heard
