"""One isolated process, for its worker: start, messages, kill, and how it ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from select import POLLIN, POLLOUT, poll
from time import sleep
from typing import Final

from forebay.worker.executors.messages import FrameReader, FromChild, ToChild, encode_frame, from_child

BUFFER: Final = 2**18
DYING_SECONDS: Final = 5.0
CLOSED_POLLS: Final = 100
CLOSED_POLL_SECONDS: Final = 0.01
# The package is found where this worker has it; the program's own path comes with the first message. With -P
# a `logging.py` in the current folder does not hide the library's.
_START: Final = (
    "import sys; sys.path.append(sys.argv[1]); from forebay.worker.executors.child_main import main; main()"
)
_ROOT: Final = str(Path(__file__).resolve().parents[3])


class ChildGone(Exception):
    """The process has ended, or has closed its connection."""


class ChildProcess:
    """One isolated process. Used only by the thread that created it: a parent-death signal is sent at the
    death of that thread.

    Sending never waits for a process that does not read: unsent bytes are kept here.
    """

    def __init__(self, now: float) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-P", "-c", _START, _ROOT, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # A process group of its own: processes that a task starts die with it, and only the worker
                # hears Ctrl-C in a terminal.
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._frames = FrameReader()
        self._unsent = bytearray()
        self._is_silent = False
        self._is_reaped = False
        self.started_at = now
        self.is_ready = False
        self.must_not_be_reused = False
        self.jobs = 0
        self.resident: int | None = None  # bytes after its last job
        self.resident_at_first: int | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid

    def post(self, message: ToChild) -> None:
        """Send as much as the socket takes now; the rest goes while `listen` waits."""
        self._unsent += encode_frame(message)
        self._flush()

    def listen(self, seconds: float, wake_receiver: socket.socket) -> list[FromChild]:
        """Return the messages that come within this time, perhaps none. Returns early at a wake-up. Raises
        ChildGone when nothing more can come, and ProtocolError."""
        poller = poll()
        poller.register(self._socket, POLLIN | (POLLOUT if self._unsent else 0))
        poller.register(wake_receiver, POLLIN)
        # Checked before the socket is read: messages that a process has sent before it died are returned.
        has_ended = self.has_ended()
        poller.poll(0 if has_ended else max(seconds, 0) * 1_000)
        _drain_wakeups(wake_receiver)
        self._flush()
        piece = self._read()
        if not piece and (has_ended or self._is_silent):
            raise ChildGone
        return [from_child(body) for body in self._frames.feed(piece)]

    def has_ended(self) -> bool:
        """Return whether it is dead. It is not reaped yet, so its pid still means this process and no
        other."""
        if self._popen.returncode is not None:
            return True
        try:
            exited = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:  # this program waits for all children elsewhere
            self._is_reaped = True
            return True
        return exited is not None

    def end(self) -> str:
        """Kill it with all processes that it has started, if it still lives, and return how it has ended.
        Ending it twice is fine."""
        if self._popen.returncode is not None:
            return _describe_exit(self._popen.returncode)
        if self._is_silent and not self.has_ended():
            # It has closed its end, most likely because it is about to die, and its own way to do so tells
            # more than our kill.
            self._wait_for_death()
            if not self.has_ended():
                self._kill()
                return "the isolated process has closed its connection to the worker"
        return self._kill()

    def _kill(self) -> str:
        if not self._is_reaped:  # else its pid may belong to another process by now
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
        try:
            status = self._popen.wait(DYING_SECONDS)
        except subprocess.TimeoutExpired:
            return "the isolated process cannot be killed"
        finally:
            self._socket.close()
        return _describe_exit(status)

    def _wait_for_death(self) -> None:
        # Polled and not waited for: waiting would reap it, and its process group is killed first.
        for _ in range(CLOSED_POLLS):
            if self.has_ended():
                return
            sleep(CLOSED_POLL_SECONDS)

    def _flush(self) -> None:
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent[:BUFFER])
            except BlockingIOError:
                return
            except OSError:  # it is gone, which `listen` detects
                self._unsent.clear()
                return
            del self._unsent[:sent]

    def _read(self) -> bytes:
        try:
            piece = self._socket.recv(BUFFER)
        except BlockingIOError:
            return b""
        except OSError:  # reset: it died with unread messages
            piece = b""
        self._is_silent = not piece
        return piece


def _drain_wakeups(wake_receiver: socket.socket) -> None:
    with suppress(BlockingIOError):
        wake_receiver.recv(BUFFER)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"the isolated process ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = ", perhaps because the machine ran out of memory" if name == "SIGKILL" else ""
    return f"the isolated process was killed by {name}{hint}"
