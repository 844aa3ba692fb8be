"""Group commit for coroutines: what comes while a call is under way goes together into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class WriteBatcher(Generic[Item, Answer]):
    """Takes items one by one and works on all that are there. Nothing waits for a timer.

    `work` answers each item, in order; what it raises is for all of them. An item whose coroutine was
    cancelled is worked on all the same: it may be under way already, and nobody could say.
    """

    def __init__(self, work: Callable[[list[Item]], Awaitable[Sequence[Answer | Exception]]]) -> None:
        self._work = work
        self._queued: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._runner: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queued.append((item, answer))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._queued:
                batch, self._queued = self._queued, []
                await self._run_batch(batch)
        finally:
            self._runner = None

    async def _run_batch(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._work([item for item, _ in batch])
        except Exception as exc:  # whatever it is, it is the answer: somebody waits for each of these
            answers = [exc] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
