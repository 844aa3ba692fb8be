"""Long polls for wake-ups: answered by the next one, and by a stop."""

from __future__ import annotations

import asyncio

import pytest

from forebay.domain.job import WorkerId
from forebay.service.runtime.remote_wakeup_polls import WakeupPolls
from tests.worker.support import DEADLINE


@pytest.mark.parametrize("coalesces", [False, True])
def test_a_poll_with_the_present_token_waits_for_a_wakeup(coalesces: bool) -> None:
    async def run() -> None:
        polls = WakeupPolls(WorkerId("w"), DEADLINE, coalesces_wakeups=coalesces)
        token = await polls.wait(None)
        waiting = asyncio.create_task(polls.wait(token))
        await asyncio.sleep(0)
        assert not waiting.done()

        polls.on_wakeup()

        answer = await waiting
        assert answer != token
        # The jobs of a coalesced wake-up may come after it, so it is signalled twice.
        if coalesces:
            assert await polls.wait(answer) not in (token, answer)

    asyncio.run(run())


def test_a_stop_answers_all_polls_with_the_present_token() -> None:
    async def run() -> None:
        polls = WakeupPolls(WorkerId("w"), 3_600.0, coalesces_wakeups=False)
        token = await polls.wait(None)
        waiting = asyncio.create_task(polls.wait(token))
        await asyncio.sleep(0)

        polls.end()

        async with asyncio.timeout(DEADLINE):
            assert await waiting == token
            assert await polls.wait(token) == token

    asyncio.run(run())
