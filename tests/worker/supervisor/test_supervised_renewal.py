"""A worker process that hears what its supervisor says."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from select import select
from typing import Final

import pytest

from forebay.worker.lease_table import LeaseTable
from forebay.worker.supervisor.channel import Channel
from forebay.worker.supervisor.messages import TO_SUPERVISOR, WakeUp, WorkerAccepted, WorkerReady
from forebay.worker.supervisor.supervised_renewal import ORPHANED

DEADLINE: Final = 120.0

# A worker process that only hears; it is told its ends of the channel and of the lease table.
HEARING: Final = """
import socket, sys, threading
from forebay.clock import SystemClock
from forebay.domain.job import WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.worker.supervisor.channel import Channel
from forebay.worker.supervisor.messages import TO_WORKER
from forebay.worker.lease_table import LeaseTable
from forebay.stores.factory import open_engine
from forebay.worker.slots import Slots
from forebay.worker.supervisor.standby_renewal import StandbyRenewal
from forebay.worker.supervisor.supervised_renewal import SupervisedRenewal, SupervisorLink, WorkerCallbacks

lease_table, slots, clock = LeaseTable(int(sys.argv[2])), Slots(1), SystemClock()
report = lambda: WorkerInfo(id=WorkerId("w"))
channel = Channel(socket.socket(fileno=int(sys.argv[1])), TO_WORKER)
nothing = lambda *_: None
SupervisedRenewal(
    SupervisorLink(channel, lease_table, "sqlite:///jobs.db", True),
    slots=slots,
    clock=clock,
    on_cancels=nothing,
    report=report,
    callbacks=WorkerCallbacks(*[nothing] * 5, wake=lambda: print("woken", flush=True), report=nothing),
    standby=StandbyRenewal(
        engine=open_engine("sqlite:///jobs.db"),
        lease_table=lease_table,
        slots=slots,
        clock=clock,
        on_cancels=nothing,
        report=report,
        supervisor=1,
    ),
).start()
threading.Event().wait()
"""


class Hearing:
    """A worker process that only hears, and the supervisor's end of its channel."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._page = LeaseTable.create()
        with theirs:
            words = [sys.executable, "-c", HEARING, str(theirs.fileno()), str(self._page.descriptor)]
            kept = (theirs.fileno(), self._page.descriptor)
            self.process = subprocess.Popen(words, pass_fds=kept, stdout=subprocess.PIPE)
        self.channel = Channel(self._ours, TO_SUPERVISOR)

    def welcomed(self) -> None:
        select([self._ours], [], [], DEADLINE)
        assert [type(one) for one in self.channel.receive() or ()] == [WorkerReady]
        self.channel.send(WorkerAccepted())

    def read_line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def send_bytes(self, text: bytes) -> None:
        self._ours.sendall(text)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.channel.close()
        self._page.close()


@pytest.fixture
def hearing() -> Iterator[Hearing]:
    hearing = Hearing()
    yield hearing
    hearing.close()


@pytest.mark.parametrize("nonsense", [b"this is no message\n", b'{"type":"stopped"}\n'])
def test_a_worker_process_that_does_not_understand_its_supervisor_ends(
    hearing: Hearing, nonsense: bytes
) -> None:
    hearing.welcomed()

    hearing.send_bytes(nonsense)

    assert hearing.process.wait(DEADLINE) == ORPHANED


def test_a_worker_process_looks_when_its_supervisor_wakes_it(hearing: Hearing) -> None:
    hearing.welcomed()

    hearing.channel.send(WakeUp())

    assert hearing.read_line() == b"woken\n"
