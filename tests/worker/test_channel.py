"""What a supervisor and a worker process say to each other."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from forebay.domain.job import JobId, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.worker import Command, CommandKind, WorkerInfo
from forebay.stores.protocol import Cancel, Refusal
from forebay.worker.channel import (
    Answered,
    Asked,
    Channel,
    Goodbye,
    Hello,
    InDoubt,
    Kept,
    Message,
    Order,
    Pause,
    Retiring,
    Said,
    Stop,
    Welcome,
)

LEASE = Lease(JobId("a job\nwith two lines"), 3)
INFO = WorkerInfo(id=WorkerId("w"), memory=5)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = map(Channel, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    "message",
    [
        Hello(info=INFO, url="sqlite:///jobs.db", is_shared=True),
        Said(info=INFO),
        Retiring(reason="it is old", replace_after=1.0),
        Answered(command_id="c", text="two\nlines"),
        Goodbye(),
        Welcome(is_paused=True),
        Kept(at=5, since=1.5, renewed=(LEASE,), refused=(Refusal(lease=LEASE, reason="gone"),)),
        InDoubt(leases=(LEASE,), failures=2),
        Asked(cancels=(Cancel(JobId("j"), "enough"),)),
        Order(command=Command(id="c", worker=WorkerId("w"), kind=CommandKind.STACKS), until=3.5),
        Stop(drain=25.0),
        Pause(is_over=True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_arrives_as_it_was_sent(ends: tuple[Channel, Channel], message: Message) -> None:
    ours, theirs = ends

    ours.send(message)
    ours.send(Goodbye())

    assert theirs.receive() == [message, Goodbye()]
    assert theirs.receive() == []


def test_what_the_other_side_does_not_take_waits_for_it(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    long = Answered(command_id="c", text="x" * 500_000)

    ours.send(long)
    ours.send(Goodbye())
    heard: list[Message] = []
    while len(heard) < 2:
        heard += theirs.receive() or []
        ours.flush()

    assert heard == [long, Goodbye()]


def test_news_that_may_be_missed_do_not_pile_up_for_one_who_does_not_read(
    ends: tuple[Channel, Channel],
) -> None:
    ours, theirs = ends
    news = InDoubt(leases=(LEASE,) * 1_000, failures=1)

    for _ in range(200):
        ours.send(news, may_be_missed=True)
    ours.send(Goodbye())
    heard: list[Message] = []
    while Goodbye() not in heard:
        heard += theirs.receive() or []
        ours.flush()

    assert len(heard) < 200


def test_last_words_are_heard_before_the_end(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends

    ours.send(Goodbye())
    ours.close()

    assert theirs.receive() == [Goodbye()]
    assert theirs.receive() is None
    theirs.send(Welcome())  # nobody hears it, and nothing is raised
