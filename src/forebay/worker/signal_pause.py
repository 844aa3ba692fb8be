"""Pause of a worker by a signal: it pauses all queues, and resumes those that it has paused."""

from __future__ import annotations

from typing import Protocol

from forebay.domain.worker import WorkerInfo


class PausableWorker(Protocol):
    @property
    def info(self) -> WorkerInfo: ...

    def pause(self, queue: str | None = None) -> None: ...

    def resume(self, queue: str | None = None) -> None: ...


class SignalPause:
    """Pauses all queues of a worker, and later resumes these. Queues that an operator had paused before stay
    paused."""

    def __init__(self, worker: PausableWorker) -> None:
        self._worker = worker
        self._paused_queues: set[str] = set()

    def pause(self) -> None:
        info = self._worker.info
        self._paused_queues |= set(info.queues) - set(info.paused)
        self._worker.pause()

    def resume(self) -> None:
        while self._paused_queues:
            self._worker.resume(self._paused_queues.pop())
