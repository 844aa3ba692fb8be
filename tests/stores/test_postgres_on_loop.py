"""Blocking work beside an event loop is called off with the coroutine that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from forebay.stores.postgres.async_bridge import AsyncBridge
from tests.stores.sqlite_support import DEADLINE, probe


def test_work_that_is_called_off_just_when_it_sends_something_to_the_loop_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = asyncio.run_coroutine_threadsafe

    async def called_off() -> bool:
        on_loop, forever = AsyncBridge(), asyncio.Event()

        def send_and_be_cancelled(
            call: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop
        ) -> Future[Any]:
            sent = send(call, loop)
            loop.call_soon_threadsafe(caller.cancel)
            probe(lambda: on_loop._is_cancelled, "the caller is cancelled")
            return sent

        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", send_and_be_cancelled)
        caller = asyncio.ensure_future(on_loop.run(lambda: on_loop.wait_for(forever.wait)))
        done, _ = await asyncio.wait([caller], timeout=DEADLINE)
        forever.set()
        return bool(done)

    assert asyncio.run(called_off())
