"""Messages over gRPC that never end, and other calls of the same client."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from threading import Event

import grpc
import pytest

from forebay.errors import TooManyRequests
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.grpc import message_arrival_turns
from forebay.service.grpc.message_arrival_turns import (
    ARRIVAL_TIMEOUT_SECONDS,
    MAX_ARRIVING,
    Arrivals,
    Turn,
)
from forebay.stores.factory import open_engine
from tests.service.live_protocols import speaking
from tests.service.live_server import PATIENCE
from tests.worker.support import eventually


def test_messages_that_never_end_give_way_to_others_of_their_client() -> None:
    with speaking(open_engine("memory://")) as spoken, ExitStack() as stack:
        queue, silence = spoken.queue("mail"), Event()
        stack.callback(silence.set)
        enqueue = spoken.channel.stream_unary("/forebay.v1.Producer/Enqueue")
        slow = [enqueue.future(iter(silence.wait, True), timeout=PATIENCE) for _ in range(MAX_ARRIVING)]

        # Its deadline is before the end of the time that a message has when no other call waits.
        job = pb.NewJob(task="t", queue=queue)
        deadline = ARRIVAL_TIMEOUT_SECONDS / 2
        assert spoken.producer.Enqueue(pb.EnqueueRequest(job=job), timeout=deadline).state == "pending"

        eventually(lambda: any(one.done() for one in slow))
        ended = [one for one in slow if one.done()]
        assert {one.code() for one in ended} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert {one.details() for one in ended} == {"the request has not arrived in time"}


async def arrive(turn: Turn, message: asyncio.Event) -> bool:
    """Return whether a message has arrived in time."""
    try:
        async with turn.arrive():
            await message.wait()
    except TimeoutError:
        return False
    return True


def test_only_the_slowest_message_gives_way_to_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_arrival_turns, "CONTENDED_TIMEOUT_SECONDS", 0.01)

    async def run() -> None:
        arrivals, message, has_begun = Arrivals(2), asyncio.Event(), asyncio.Event()

        async def call() -> bool:
            async with arrivals.turn("a") as turn:
                has_begun.set()
                return await arrive(turn, message)

        slowest = asyncio.create_task(call())
        await has_begun.wait()
        slow = asyncio.create_task(call())
        await asyncio.sleep(0)
        async with arrivals.turn("a"):
            assert not await slowest
            assert not slow.done()
        message.set()
        assert await slow

    asyncio.run(run())


def test_messages_that_begin_while_others_wait_give_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_arrival_turns, "CONTENDED_TIMEOUT_SECONDS", 0.01)

    async def run() -> None:
        arrivals, never = Arrivals(1), asyncio.Event()

        async def call() -> bool:
            async with arrivals.turn("a") as turn:
                return await arrive(turn, never)

        slow = [asyncio.create_task(call()) for _ in range(5)]
        await asyncio.sleep(0)
        async with arrivals.turn("a"):
            assert not any(await asyncio.gather(*slow))

    asyncio.run(run())


def test_a_call_whose_message_is_read_is_not_counted_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_arrival_turns, "MAX_UNREAD", 2)

    async def run() -> None:
        arrivals = Arrivals()
        async with arrivals.turn("a") as first, arrivals.turn("a"):
            with pytest.raises(TooManyRequests, match="has 2 calls whose message was not read yet"):
                async with arrivals.turn("a"):
                    pass
            first.end()
            async with arrivals.turn("a"):
                pass

    asyncio.run(run())


def test_the_end_of_an_earlier_call_gives_no_further_turns() -> None:
    async def run() -> None:
        arrivals, answered, is_read = Arrivals(1), asyncio.Event(), asyncio.Event()

        async def long_poll() -> None:
            async with arrivals.turn("a") as turn:
                turn.end()  # its message is read, its answer comes later
                is_read.set()
                await answered.wait()

        async def call() -> None:
            async with arrivals.turn("a"):
                pass

        poll = asyncio.create_task(long_poll())
        await is_read.wait()
        await call()  # leaves no turn
        async with arrivals.turn("a"):
            answered.set()
            await poll
            other = asyncio.create_task(call())
            await asyncio.sleep(0)
            assert not other.done()
        await other

    asyncio.run(run())
