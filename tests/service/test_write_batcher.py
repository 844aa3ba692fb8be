"""Group commit for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from forebay.service.runtime.write_batcher import WriteBatcher


def test_what_comes_while_a_call_is_under_way_goes_together() -> None:
    batches: list[list[int]] = []

    async def run() -> list[int]:
        may_go = asyncio.Event()

        async def work(items: list[int]) -> Sequence[int]:
            batches.append(items)
            await may_go.wait()
            return [item * 10 for item in items]

        merge = WriteBatcher(work)
        asking = [asyncio.create_task(merge(1))]
        await asyncio.sleep(0)
        asking += [asyncio.create_task(merge(number)) for number in (2, 3)]
        await asyncio.sleep(0)
        may_go.set()
        return await asyncio.gather(*asking)

    assert asyncio.run(run()) == [10, 20, 30]
    assert batches == [[1], [2, 3]]


def test_an_error_is_for_its_item_or_for_all_of_its_batch() -> None:
    async def run() -> None:
        async def work(items: list[int]) -> Sequence[int | Exception]:
            if 0 in items:
                raise ValueError("all")
            return [KeyError(item) if item < 0 else item for item in items]

        merge = WriteBatcher(work)
        assert await merge(1) == 1
        with pytest.raises(KeyError):
            await merge(-1)
        with pytest.raises(ValueError, match="all"):
            await merge(0)
        assert await merge(2) == 2

    asyncio.run(run())


def test_one_who_leaves_spoils_nothing_for_the_others() -> None:
    async def run() -> None:
        may_go = asyncio.Event()

        async def work(items: list[int]) -> Sequence[int]:
            await may_go.wait()
            return items

        merge = WriteBatcher(work)
        leaving, staying = asyncio.create_task(merge(1)), asyncio.create_task(merge(2))
        await asyncio.sleep(0)
        leaving.cancel()
        may_go.set()

        assert await staying == 2
        assert leaving.cancelled()

    asyncio.run(run())
