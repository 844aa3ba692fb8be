"""Being quiet because a signal said so."""

from __future__ import annotations

from typing import Protocol

from forebay.domain.worker import WorkerInfo


class Pausable(Protocol):
    @property
    def info(self) -> WorkerInfo: ...

    def pause(self, queue: str | None = None) -> None: ...

    def resume(self, queue: str | None = None) -> None: ...


class Quieting:
    """Pauses all queues of a worker, and later resumes those: not what an operator had paused before."""

    def __init__(self, worker: Pausable) -> None:
        self._worker = worker
        self._quieted: set[str] = set()

    def pause(self) -> None:
        info = self._worker.info
        self._quieted |= set(info.queues) - set(info.paused)
        self._worker.pause()

    def resume(self) -> None:
        while self._quieted:
            self._worker.resume(self._quieted.pop())
