"""Supervisor: starts worker processes, watches them, and replaces those that die."""

from __future__ import annotations

import faulthandler
import logging
import os
import selectors
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, assert_never

import msgspec

from forebay.clock import Clock, SystemClock
from forebay.domain.worker import WorkerState
from forebay.errors import ConfigError, StoreUnavailable, WorkersDied
from forebay.stores.factory import open_engine
from forebay.worker.lease_table import STOPPED
from forebay.worker.supervisor.code_change_watcher import CodeChangeWatcher
from forebay.worker.supervisor.lease_manager import LeaseManager
from forebay.worker.supervisor.messages import (
    CommandAnswered,
    SetPaused,
    StatusChanged,
    StopWorker,
    ToSupervisor,
    WorkerReady,
    WorkerRetiring,
    WorkerStopped,
)
from forebay.worker.supervisor.restart_policy import MAX_RESTARTS, RestartPolicy
from forebay.worker.supervisor.worker_process import WorkerProcess, describe_exit, spawn

TICK_SECONDS: Final = 0.25
STACKS_SECONDS: Final = 0.05
SILENT_SECONDS: Final = 5.0
HOPELESS_SECONDS: Final = 15.0
EXCUSED_SECONDS: Final = 60.0  # for how long a store without an answer explains a silence
# A worker interrupts the remaining jobs after its drain for three seconds, and closes within two.
LEAVING_SECONDS: Final = 6.0
RELEASE_SECONDS: Final = 5.0
NO_STORE: Final = 3  # the exit status of a worker that cannot reach its store

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_HANDLED_SIGNALS: Final = (*_STOP_SIGNALS, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTSTP, signal.SIGCONT)

logger: logging.Logger = logging.getLogger(__name__)


class SupervisorPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Number of worker processes, their drain time, and how one is started. `command` builds its arguments
    from the descriptors of its channel and its lease table."""

    processes: int
    drain: float
    command: Callable[[int, int], Sequence[str]]
    is_reloading: bool = False


class Supervisor:
    """One loop on the main thread, woken by signals, deaths and messages; a second thread calls the store.

    It does not load the app, so nothing that the app does to its process happens here. A new process is
    always a fresh one.
    """

    def __init__(self, plan: SupervisorPlan, clock: Clock | None = None) -> None:
        self._plan = plan
        self._clock = clock or SystemClock()
        self._children: dict[int, WorkerProcess] = {}
        self._received_signals: deque[int] = deque()
        self._restart_policy = RestartPolicy()
        self._start_times: list[float] = []  # when to start the next ones
        self._selector = selectors.DefaultSelector()
        self._lease_manager: LeaseManager | None = None
        self._ticked_at = self._watched_since = self._clock.monotonic()
        self._stops = 0
        self._is_paused = False
        self._code_change_watcher: CodeChangeWatcher | None = None
        self._pending_stacks: deque[WorkerProcess] = deque()  # children whose stacks are to be shown
        self._missing = 0  # processes that could not begin; with new code they may
        self._status = 0
        self._failure: Exception | None = None

    def run(self) -> int:
        """Run until all workers have ended, and return the exit status. Raises ConfigError if there is
        nothing to run, WorkersDied if they die again and again."""
        with self._handle_signals():
            try:
                self._start()
                while self._children or self._start_times or (self._missing and not self._stops):
                    self._tick()
            finally:
                self._leave()
        if self._failure is not None:
            raise self._failure
        return self._status

    def _tick(self) -> None:
        self._wait()
        self._process_signals()
        self._receive_all()
        self._reap()
        self._check_children()
        self._show_next_stacks()
        self._reload()
        self._start_due()

    def _wait(self) -> None:
        for key, _ in self._selector.select(STACKS_SECONDS if self._pending_stacks else TICK_SECONDS):
            if isinstance(key.fileobj, socket.socket):
                with suppress(BlockingIOError):
                    key.fileobj.recv(4_096)
        now = self._clock.monotonic()
        if now - self._ticked_at > SILENT_SECONDS:
            # This process was stopped, or the whole machine was; no child was watched meanwhile.
            self._watched_since = now
        self._ticked_at = now

    # Processes

    def _start(self) -> None:
        child = spawn(self._plan.command)
        self._children[child.pid] = child
        self._selector.register(child.channel, selectors.EVENT_READ)
        logger.info("worker process %s starts", child.pid)

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        while any(start_at <= now for start_at in self._start_times) and not self._stops:
            self._start_times.remove(min(self._start_times))
            try:
                self._start()
            except OSError as exc:
                # No memory, no descriptors or no more processes; the other children go on, and it may pass.
                logger.error("no worker process can be started: %s", exc)
                self._restart(now, f"the last one could not be started: {exc}")

    def _reap(self) -> None:
        """Reap every process that has ended, also unrelated ones: the first process of a container inherits
        all orphans."""
        while True:
            try:
                exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if exited is None:
                return
            child = self._children.pop(exited.si_pid, None)
            if child is not None:
                self._receive(child)  # its last messages
                child.kill()  # and its tasks' processes; not reaped yet, so the pid is still its own
            _, status = os.waitpid(exited.si_pid, 0)
            if child is not None:
                self._on_exit(child, os.waitstatus_to_exitcode(status))

    def _on_exit(self, child: WorkerProcess, status: int) -> None:
        child.mark_exited(status)
        with suppress(KeyError, ValueError):
            self._selector.unregister(child.channel)
        in_order = child.has_announced_exit and status == 0
        log = logger.info if in_order else logger.error
        log("worker process %s %s", child.pid, describe_exit(status))
        if self._lease_manager is None:
            child.close()
        else:
            self._lease_manager.release_exited(child, describe_exit(status))
        if self._stops:
            self._status = self._status or (status if status == NO_STORE else 0)
        elif not (in_order or child.is_leaving):
            self._replace(child, status)

    def _replace(self, child: WorkerProcess, status: int) -> None:
        if self._code_change_watcher is not None and child.info is None:
            logger.info("no worker process can begin before the code has changed")
            self._missing += 1
            return
        if self._lease_manager is None and status >= 0:
            # The first one has not even begun, and has logged why. (One that a signal has ended could not.)
            self._status = max(status, 1)
            return
        now = self._clock.monotonic()
        if status == NO_STORE and child.info is None:
            # The store is unavailable; starting again does not help.
            self._start_times.append(now + HOPELESS_SECONDS)
            return
        self._restart(now, f"the last one, {child.pid}, {describe_exit(status)}")

    def _restart(self, now: float, reason: str) -> None:
        wait = self._restart_policy.next_delay(now)
        if wait is None:
            self._failure = WorkersDied(
                f"worker processes have died more than {MAX_RESTARTS} times within a minute; {reason}: "
                "look for the reason in the log, and start again after that"
            )
            self._stop_all(self._plan.drain)
            return
        logger.info("another worker process starts in %g s", wait)
        self._start_times.append(now + wait)

    def _reload(self) -> None:
        """Replace all processes, if there is new code for them."""
        if self._code_change_watcher is None or not self._code_change_watcher.has_changed() or self._stops:
            return
        now = self._clock.monotonic()
        self._start_times += [now] * self._missing
        self._missing = 0
        for child in [child for child in self._children.values() if not child.is_leaving]:
            self._start_times.append(now)
            self._dismiss(child, self._plan.drain)

    # Messages

    def _receive_all(self) -> None:
        for child in list(self._children.values()):
            self._receive(child)
            child.channel.flush()

    def _receive(self, child: WorkerProcess) -> None:
        try:
            messages = child.channel.receive() if child.is_connected else ()
        except msgspec.MsgspecError as exc:
            # A task has written there, or the child is of an unknown release.
            logger.error("worker process %s sent an invalid message, and is killed: %s", child.pid, exc)
            child.kill()
            messages = None
        if messages is None:
            child.is_connected = False
            with suppress(KeyError, ValueError):
                self._selector.unregister(child.channel)  # else it would be readable for ever
            return
        for message in messages:
            self._handle(child, message)

    def _handle(self, child: WorkerProcess, message: ToSupervisor) -> None:
        match message:
            case WorkerReady():
                self._accept(child, message)
            case StatusChanged(info=info):
                child.info = info
                if info.state is WorkerState.STOPPING:
                    child.is_leaving = True
            case WorkerRetiring():
                self._retire(child, message)
            case CommandAnswered(command_id=command_id, text=text):
                if self._lease_manager is not None:
                    self._lease_manager.answer(command_id, text)
            case WorkerStopped():
                child.has_announced_exit = True
                child.leave_by = min(child.leave_by, self._clock.monotonic() + HOPELESS_SECONDS)
            case _:
                assert_never(message)

    def _accept(self, child: WorkerProcess, message: WorkerReady) -> None:
        if not message.is_shared:
            raise ConfigError(
                "this store lives in the memory of one process, so several cannot share it: leave "
                "--processes out, or name a store that is shared, such as sqlite:///jobs.db"
            )
        child.info = message.info
        if self._lease_manager is None:
            self._lease_manager = LeaseManager(
                engine=open_engine(message.url, key=message.key),
                clock=self._clock,
                supervisor=os.getpid(),
                children=lambda: tuple(self._children.values()),
                is_paused=lambda: self._is_paused,
            )
            self._lease_manager.start()
            # One goes ahead: an error of the app is logged once, and not by each process.
            now = self._clock.monotonic()
            self._start_times += [now] * (self._plan.processes - 1)
        self._lease_manager.welcome(child)

    def _retire(self, child: WorkerProcess, message: WorkerRetiring) -> None:
        logger.info("worker process %s retires, because %s", child.pid, message.reason)
        if not child.is_leaving and not self._stops:
            self._start_times.append(self._clock.monotonic() + message.replace_after)
        child.is_leaving = True

    # Supervision

    def _check_children(self) -> None:
        """Detect silent workers; kill those that are silent without a reason or do not leave in time."""
        if self._lease_manager is not None and self._lease_manager.failure is not None:
            raise self._lease_manager.failure
        now = self._clock.monotonic()
        for child in self._children.values():
            self._limit_stop(child, now)
            silence = self._silence(child, now)
            child.is_silent = silence > SILENT_SECONDS
            if now >= child.leave_by:
                logger.error("worker process %s does not leave, and is killed", child.pid)
                child.leave_by = inf
                child.kill()
            elif silence > HOPELESS_SECONDS and not any(
                entry.is_within_timeout(now) for entry in child.lease_table.entries()
            ):
                logger.error(
                    "worker process %s has been silent for %.0f s, and is killed", child.pid, silence
                )
                child.kill()

    def _limit_stop(self, child: WorkerProcess, now: float) -> None:
        """Limit the rest of a stop: a worker that ticks no more has only its hooks left, and they may take as
        long as a drain."""
        if child.lease_table.ticked_at == STOPPED and not child.has_stopped_ticking:
            child.has_stopped_ticking = True
            child.leave_by = min(child.leave_by, now + self._plan.drain + LEAVING_SECONDS)

    def _silence(self, child: WorkerProcess, now: float) -> float:
        """Return for how long its coordinator has not ticked, while nothing kept it from doing so."""
        ticked_at = child.lease_table.ticked_at
        if ticked_at <= 0 or self._lease_manager is None or child.has_announced_exit:
            return 0.0  # it has not begun, or has ended
        silence = now - max(ticked_at, self._watched_since)
        # No call waits that long. A process that was stopped in the middle of a transaction may be the very
        # one that all others wait for: it has the lock of a SQLite file until it is gone.
        if silence > EXCUSED_SECONDS:
            return silence
        return min(silence, now - self._lease_manager.answers_since(now))

    # Signals

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """Let signals wake the loop, by a self-pipe; restore everything afterwards."""
        receiver, sender = socket.socketpair()
        with ExitStack() as stack:
            stack.enter_context(receiver)
            stack.enter_context(sender)
            receiver.setblocking(False)
            sender.setblocking(False)
            self._selector.register(receiver, selectors.EVENT_READ)
            if self._plan.is_reloading:
                self._code_change_watcher = CodeChangeWatcher(Path.cwd(), partial(sender.send, b"r"))
                stack.callback(self._code_change_watcher.stop)
                self._code_change_watcher.start()
            stack.callback(self._selector.close)
            stack.callback(
                signal.set_wakeup_fd, signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
            )
            for number in _HANDLED_SIGNALS:
                stack.callback(
                    signal.signal,
                    number,
                    signal.signal(number, lambda received, _: self._received_signals.append(received)),
                )
            yield

    def _process_signals(self) -> None:
        while self._received_signals:
            number = self._received_signals.popleft()
            if number in _STOP_SIGNALS:
                self._stop_all(self._plan.drain if not self._stops else 0.0)
            elif number == signal.SIGUSR1:
                self._show_stacks()
            elif number == signal.SIGTSTP:
                self._pause(is_over=False)
            elif number == signal.SIGCONT and self._is_paused:
                self._pause(is_over=True)

    def _pause(self, *, is_over: bool) -> None:
        logger.info("all workers %s", "go on" if is_over else "pause until SIGCONT")
        self._is_paused = not is_over
        for child in self._children.values():
            # One that is just being accepted may miss the pause in its acceptance.
            child.channel.send(SetPaused(is_over=is_over))

    def _show_stacks(self) -> None:
        faulthandler.dump_traceback(all_threads=True)
        # Before it is up the signal would kill it.
        self._pending_stacks = deque(child for child in self._children.values() if child.is_up)

    def _show_next_stacks(self) -> None:
        """Show the stacks of one child after the other: several at once would be mixed letter by letter."""
        if self._pending_stacks and (child := self._pending_stacks.popleft()).pid in self._children:
            # A silent process does not handle SIGUSR1, and nothing in it changes while SIGUSR2 is handled.
            child.send_signal(signal.SIGUSR2 if child.is_silent else signal.SIGUSR1)

    # Stop

    def _stop_all(self, drain: float) -> None:
        """Let all workers stop in order; called again, at once."""
        self._stops += 1
        self._start_times.clear()
        logger.info("all workers stop; running jobs may take another %g s", drain)
        for child in self._children.values():
            self._dismiss(child, drain)

    def _dismiss(self, child: WorkerProcess, drain: float) -> None:
        child.is_leaving = True
        child.leave_by = min(child.leave_by, self._clock.monotonic() + drain + LEAVING_SECONDS)
        if child.is_up:
            child.channel.send(StopWorker(drain=drain))
        else:
            child.kill()  # it holds no lease yet

    def _leave(self) -> None:
        """Leave no process behind, and no lease that could be handed back."""
        for child in self._children.values():
            child.kill()
        while self._children:
            pid, status = os.waitpid(-1, 0)
            exited = self._children.pop(pid, None)
            if exited is not None:
                self._stops += 1
                self._on_exit(exited, os.waitstatus_to_exitcode(status))
        if self._lease_manager is not None:
            self._lease_manager.stop(RELEASE_SECONDS)
            if not self._lease_manager.is_idle and self._failure is None:
                self._failure = StoreUnavailable(
                    "the store does not answer, so the supervisor ends without deregistering; "
                    "the jobs of its workers are run again when their leases have ended"
                )
