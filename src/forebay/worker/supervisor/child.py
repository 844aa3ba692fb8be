"""One worker process, as its supervisor knows it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from math import inf

from forebay.domain.job import WorkerId
from forebay.domain.lease import Lease
from forebay.domain.worker import WorkerInfo
from forebay.worker.lease_table import LeaseTable
from forebay.worker.supervisor.channel import TO_SUPERVISOR, Channel, ToSupervisor


class WorkerProcess:
    """The main thread changes what it is told, the keeper's thread reads it; each field has one writer."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel[ToSupervisor], lease_table: LeaseTable
    ) -> None:
        self._process = process
        self.pid: int = process.pid
        self.channel = channel
        self.lease_table = lease_table
        self.info: WorkerInfo | None = None
        self.is_up = False  # it has been welcomed, and may hold leases
        self.is_connected = True  # its end of the channel is open
        self.has_stopped_ticking = False  # its coordinator has played its last turn
        self.is_leaving = False  # it will end and nobody needs to take its place
        self.has_said_goodbye = False
        self.is_gone: bool = False
        self.is_silent = False
        self.leave_by = inf
        # The keeper's own
        self.renew_at: dict[tuple[Lease, float], float] = {}
        self.heartbeat_at: float = 0.0
        self.reported_state: object = None
        self.return_requested_at: dict[Lease, float] = {}

    @property
    def worker(self) -> WorkerId | None:
        return None if self.info is None else self.info.id

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, and whatever its tasks have started in its process group. Not after it has been reaped:
        the number may be another's then."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.send_signal(signal.SIGKILL)

    def mark_exited(self, status: int) -> None:
        self.is_gone = True
        self._process.returncode = status  # else it would look for itself, and find nobody

    def close(self) -> None:
        self.channel.close()
        self.lease_table.close()


def spawn(command: Callable[[int, int], Sequence[str]]) -> WorkerProcess:
    """Start a worker process; `command` makes its words from the descriptors of its channel and its page.

    In a process group of its own, so that Ctrl-C is heard by the supervisor alone. Called from the main
    thread: the kernel ties a child's life to the thread that has started it.
    """
    with ExitStack() as undo:
        page = LeaseTable.create()
        undo.callback(page.close)
        ours, theirs = socket.socketpair()
        undo.callback(ours.close)
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own program
                command(theirs.fileno(), page.descriptor),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), page.descriptor),
                process_group=0,
            )
        undo.pop_all()
    return WorkerProcess(process, Channel(ours, TO_SUPERVISOR), page)


def describe_exit(status: int) -> str:
    """How a process has ended, in words; `status` is negative for a signal."""
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
