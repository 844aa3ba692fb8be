"""Stop signals of long-running commands."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from forebay.worker.coordinator_inbox import WakeSignal


@contextmanager
def collect_signals(wake_signal: WakeSignal) -> Iterator[deque[int]]:
    """Collect stop signals; each sets `wake_signal`. The old handlers are restored at the end."""
    signals: deque[int] = deque()

    def on_signal(number: int, _: object) -> None:
        signals.append(number)
        wake_signal.set()

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, on_signal))
        yield signals
