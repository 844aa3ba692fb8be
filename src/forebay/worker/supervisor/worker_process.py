"""One worker process, as its supervisor sees it."""

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
from forebay.worker.supervisor.channel import Channel
from forebay.worker.supervisor.messages import TO_SUPERVISOR, ToSupervisor


class WorkerProcess:
    """State of a worker process. Each field has one writer: the main thread for those it learns, the lease
    manager's thread for its own."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel[ToSupervisor], lease_table: LeaseTable
    ) -> None:
        self._process = process
        self.pid: int = process.pid
        self.channel = channel
        self.lease_table = lease_table
        self.info: WorkerInfo | None = None
        self.is_up = False  # it was accepted, and may hold leases
        self.is_connected = True  # its end of the channel is open
        self.has_stopped_ticking = False  # its coordinator has ticked for the last time
        self.is_leaving = False  # it will end and needs no replacement
        self.has_announced_exit = False
        self.is_gone: bool = False
        self.is_silent = False
        self.leave_by = inf
        # Written by the lease manager
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
        """Kill it with all processes that its tasks have started in its process group. Not after it has been
        reaped: the pid may belong to another process then."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.send_signal(signal.SIGKILL)

    def mark_exited(self, status: int) -> None:
        self.is_gone = True
        self._process.returncode = status  # else Popen would wait for it, and find no process

    def close(self) -> None:
        self.channel.close()
        self.lease_table.close()


def spawn(command: Callable[[int, int], Sequence[str]]) -> WorkerProcess:
    """Start a worker process; `command` builds its arguments from the descriptors of its channel and its
    lease table.

    It has a process group of its own, so that only the supervisor hears Ctrl-C. Called from the main thread:
    the kernel ties a child's life to the thread that has started it.
    """
    with ExitStack() as undo:
        lease_table = LeaseTable.create()
        undo.callback(lease_table.close)
        supervisor_end, worker_end = socket.socketpair()
        undo.callback(supervisor_end.close)
        with worker_end:
            process = subprocess.Popen(  # noqa: S603 - our own program
                command(worker_end.fileno(), lease_table.descriptor),
                stdin=subprocess.DEVNULL,
                pass_fds=(worker_end.fileno(), lease_table.descriptor),
                process_group=0,
            )
        undo.pop_all()
    return WorkerProcess(process, Channel(supervisor_end, TO_SUPERVISOR), lease_table)


def describe_exit(status: int) -> str:
    """Return how a process has ended, as text; `status` is negative for a signal."""
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
