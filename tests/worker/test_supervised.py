"""A worker process that hears what its supervisor says."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Final

import pytest

from forebay.worker.channel import TO_SUPERVISOR, Channel, Hello, Welcome
from forebay.worker.page import Page
from forebay.worker.supervised import ORPHANED

DEADLINE: Final = 30.0

# A worker process that only hears; it is told its ends of the channel and of the page.
HEARING: Final = """
import socket, sys, threading
from forebay.clock import SystemClock
from forebay.domain.job import WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.worker.channel import TO_WORKER, Channel
from forebay.worker.page import Page
from forebay.worker.slots import Slots
from forebay.worker.supervised import Leash, Steered, Supervised

channel = Channel(socket.socket(fileno=int(sys.argv[1])), TO_WORKER)
nothing = lambda *_: None
Supervised(
    Leash(channel, Page(int(sys.argv[2])), "sqlite:///jobs.db", True),
    slots=Slots(1),
    clock=SystemClock(),
    tell=nothing,
    report=lambda: WorkerInfo(id=WorkerId("w")),
    steered=Steered(nothing, nothing, nothing, nothing, nothing),
).start()
threading.Event().wait()
"""


@pytest.mark.parametrize("nonsense", [b"this is no message\n", b'{"type":"goodbye"}\n'])
def test_a_worker_process_that_does_not_understand_its_supervisor_ends(nonsense: bytes) -> None:
    ours, theirs = socket.socketpair()
    page = Page.made()
    with theirs:
        words = [sys.executable, "-c", HEARING, str(theirs.fileno()), str(page.descriptor)]
        process = subprocess.Popen(words, pass_fds=(theirs.fileno(), page.descriptor))
    channel = Channel(ours, TO_SUPERVISOR)
    try:
        ours.settimeout(DEADLINE)
        ours.recv(1, socket.MSG_PEEK)
        ours.setblocking(False)
        assert [type(one) for one in channel.receive() or ()] == [Hello]
        channel.send(Welcome())
        ours.sendall(nonsense)

        assert process.wait(DEADLINE) == ORPHANED
    finally:
        process.kill()
        process.wait()
        channel.close()
        page.close()
