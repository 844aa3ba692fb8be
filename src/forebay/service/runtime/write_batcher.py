"""Group commit for coroutines: items that come during a call go together into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class WriteBatcher(Generic[Item, Answer]):
    """Batcher that calls `work` with all queued items at once, without a timer.

    `work` returns a result for each item, in order; an exception of it is the result of all. An item whose
    coroutine was cancelled is processed all the same, because it may be in flight already.
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
        except Exception as exc:  # an error of any kind is the result of every waiting item
            answers = [exc] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
