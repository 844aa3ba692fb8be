"""What a supervisor and a worker process say to each other."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import pytest

from forebay.domain.job import JobId, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command, CommandKind
from forebay.stores.contract.claims_and_results import LeaseRefusal, PendingCancel
from forebay.worker.supervisor.channel import Channel
from forebay.worker.supervisor.messages import (
    TO_SUPERVISOR,
    TO_WORKER,
    CancelsRequested,
    CommandAnswered,
    CommandSent,
    LeasesRenewed,
    RenewalFailed,
    SetPaused,
    StatusChanged,
    StopWorker,
    ToSupervisor,
    ToWorker,
    WakeUp,
    WorkerAccepted,
    WorkerReady,
    WorkerRetiring,
    WorkerStopped,
)

LEASE = Lease(JobId("a job\nwith two lines"), 3)
INFO = WorkerInfo(id=WorkerId("w"), memory=5)


class Ends(NamedTuple):
    """The two ends of one channel, each with what it understands."""

    supervisor: Channel[ToSupervisor]
    worker: Channel[ToWorker]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    ends = Ends(Channel(ours, TO_SUPERVISOR), Channel(theirs, TO_WORKER))
    yield ends
    ends.supervisor.close()
    ends.worker.close()


TO_A_SUPERVISOR: Final[list[ToSupervisor]] = [
    WorkerReady(info=INFO, url="sqlite:///jobs.db", is_shared=True),
    StatusChanged(info=INFO),
    WorkerRetiring(reason="it is old", replace_after=1.0),
    CommandAnswered(command_id="c", text="two\nlines"),
    WorkerStopped(),
]
TO_A_WORKER: Final[list[ToWorker]] = [
    WorkerAccepted(is_paused=True),
    LeasesRenewed(at=5, since=1.5, renewed=(LEASE,), refused=(LeaseRefusal(lease=LEASE, reason="gone"),)),
    RenewalFailed(leases=(LEASE,), failures=2),
    CancelsRequested(cancels=(PendingCancel(JobId("j"), "enough"),)),
    CommandSent(command=Command(id="c", worker=WorkerId("w"), kind=CommandKind.STACKS), until=3.5),
    StopWorker(drain=25.0),
    SetPaused(is_over=True),
    WakeUp(),
]


def name_of(message: object) -> str:
    return type(message).__name__


@pytest.mark.parametrize("message", TO_A_SUPERVISOR, ids=name_of)
def test_what_a_worker_says_arrives_as_it_was_sent(ends: Ends, message: ToSupervisor) -> None:
    ends.worker.send(message)
    ends.worker.send(WorkerStopped())

    assert ends.supervisor.receive() == [message, WorkerStopped()]
    assert ends.supervisor.receive() == []


@pytest.mark.parametrize("message", TO_A_WORKER, ids=name_of)
def test_what_a_supervisor_says_arrives_as_it_was_sent(ends: Ends, message: ToWorker) -> None:
    ends.supervisor.send(message)
    ends.supervisor.send(WorkerAccepted())

    assert ends.worker.receive() == [message, WorkerAccepted()]
    assert ends.worker.receive() == []


@pytest.mark.parametrize("message", TO_A_WORKER, ids=name_of)
def test_a_supervisor_does_not_understand_what_is_said_to_workers(ends: Ends, message: ToWorker) -> None:
    ends.worker.send(message)

    with pytest.raises(msgspec.MsgspecError):
        ends.supervisor.receive()


@pytest.mark.parametrize("message", TO_A_SUPERVISOR, ids=name_of)
def test_a_worker_does_not_understand_what_is_said_to_supervisors(ends: Ends, message: ToSupervisor) -> None:
    ends.supervisor.send(message)

    with pytest.raises(msgspec.MsgspecError):
        ends.worker.receive()


def test_what_the_other_side_does_not_take_waits_for_it(ends: Ends) -> None:
    long = CommandAnswered(command_id="c", text="x" * 500_000)

    ends.worker.send(long)
    ends.worker.send(WorkerStopped())
    heard: list[ToSupervisor] = []
    while len(heard) < 2:
        heard += ends.supervisor.receive() or []
        ends.worker.flush()

    assert heard == [long, WorkerStopped()]


def test_messages_that_may_be_missed_do_not_pile_up_for_one_who_does_not_read(ends: Ends) -> None:
    message = RenewalFailed(leases=(LEASE,) * 1_000, failures=1)

    for _ in range(200):
        ends.supervisor.send(message, may_be_missed=True)
    ends.supervisor.send(WorkerAccepted())
    heard: list[ToWorker] = []
    while WorkerAccepted() not in heard:
        heard += ends.worker.receive() or []
        ends.supervisor.flush()

    assert len(heard) < 200


def test_last_words_are_heard_before_the_end(ends: Ends) -> None:
    ends.worker.send(WorkerStopped())
    ends.worker.close()

    assert ends.supervisor.receive() == [WorkerStopped()]
    assert ends.supervisor.receive() is None
    ends.supervisor.send(WorkerAccepted())  # no process hears it, and nothing is raised
