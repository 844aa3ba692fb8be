"""A supervisor: it starts worker processes, watches them, and replaces those that die."""

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
from forebay.stores.opening import open_engine
from forebay.worker.channel import (
    Answered,
    Goodbye,
    Hello,
    Pause,
    Retiring,
    Said,
    Stop,
    ToSupervisor,
)
from forebay.worker.page import PLAYED
from forebay.worker.supervisor.child import Child, ended_by, started
from forebay.worker.supervisor.keeper import Keeper
from forebay.worker.supervisor.reloading import Reloading
from forebay.worker.supervisor.restarting import MOST, Restarting

TICK_SECONDS: Final = 0.25
STACKS_SECONDS: Final = 0.05
SILENT_SECONDS: Final = 5.0
HOPELESS_SECONDS: Final = 15.0
EXCUSED_SECONDS: Final = 60.0  # for how long a store that does not answer explains a silence
# A worker interrupts what is left after its drain for three seconds, and closes within two.
LEAVING_SECONDS: Final = 6.0
BURYING_SECONDS: Final = 5.0
NO_STORE: Final = 3  # the exit status of a worker that cannot reach its store

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_HEARD: Final = (*_STOPS, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTSTP, signal.SIGCONT)

logger: logging.Logger = logging.getLogger(__name__)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How many worker processes there shall be, how long they may drain, and how one is started: `command`
    makes its words from the descriptors of its channel and its page."""

    processes: int
    drain: float
    command: Callable[[int, int], Sequence[str]]
    is_reloading: bool = False


class Supervisor:
    """One loop on the main thread, woken by signals, deaths and messages; a second thread asks the store.

    It does not load the app, so whatever the app does to its process does not happen here, and a new process
    is always a fresh one.
    """

    def __init__(self, plan: Plan, clock: Clock | None = None) -> None:
        self._plan = plan
        self._clock = clock or SystemClock()
        self._children: dict[int, Child] = {}
        self._heard: deque[int] = deque()
        self._restarting = Restarting()
        self._due: list[float] = []  # when to start the next ones
        self._selector = selectors.DefaultSelector()
        self._keeper: Keeper | None = None
        self._looked_at = self._watched_since = self._clock.monotonic()
        self._stops = 0
        self._is_paused = False
        self._reloading: Reloading | None = None
        self._unshown: deque[Child] = deque()  # whose stacks are to be shown
        self._missing = 0  # processes that could not begin; with new code they may
        self._status = 0
        self._failure: Exception | None = None

    def run(self) -> int:
        """Run until all workers have ended; the exit status. Raises ConfigError if there is nothing to run,
        WorkersDied if they die again and again."""
        with self._listening():
            try:
                self._start()
                while self._children or self._due or (self._missing and not self._stops):
                    self._tick()
            finally:
                self._leave()
        if self._failure is not None:
            raise self._failure
        return self._status

    def _tick(self) -> None:
        self._wait()
        self._hear_signals()
        self._hear_children()
        self._reap()
        self._watch()
        self._show_next()
        self._reload()
        self._start_due()

    def _wait(self) -> None:
        for key, _ in self._selector.select(STACKS_SECONDS if self._unshown else TICK_SECONDS):
            if isinstance(key.fileobj, socket.socket):
                with suppress(BlockingIOError):
                    key.fileobj.recv(4_096)
        now = self._clock.monotonic()
        if now - self._looked_at > SILENT_SECONDS:
            # We were stopped ourselves, or the whole machine was; nobody was watched meanwhile.
            self._watched_since = now
        self._looked_at = now

    # Processes

    def _start(self) -> None:
        child = started(self._plan.command)
        self._children[child.pid] = child
        self._selector.register(child.channel, selectors.EVENT_READ)
        logger.info("worker process %s starts", child.pid)

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        while any(at <= now for at in self._due) and not self._stops:
            self._due.remove(min(self._due))
            try:
                self._start()
            except OSError as exc:
                # No memory, no descriptors or no more processes; the others go on, and it may pass.
                logger.error("no worker process can be started: %s", exc)
                self._restart(now, f"the last one could not be started: {exc}")

    def _reap(self) -> None:
        """Take note of every process that has ended, also of strangers: as the first process of a container
        we inherit the orphans of all others."""
        while True:
            try:
                gone = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if gone is None:
                return
            child = self._children.pop(gone.si_pid, None)
            if child is not None:
                self._hear(child)  # its last words
                child.kill()  # what its tasks have left behind; not reaped yet, the number is still its own
            _, status = os.waitpid(gone.si_pid, 0)
            if child is not None:
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, status: int) -> None:
        child.reaped(status)
        with suppress(KeyError, ValueError):
            self._selector.unregister(child.channel)
        in_order = child.has_said_goodbye and status == 0
        log = logger.info if in_order else logger.error
        log("worker process %s %s", child.pid, ended_by(status))
        if self._keeper is None:
            child.close()
        else:
            self._keeper.bury(child, ended_by(status))
        if self._stops:
            self._status = self._status or (status if status == NO_STORE else 0)
        elif not (in_order or child.is_leaving):
            self._replace(child, status)

    def _replace(self, child: Child, status: int) -> None:
        if self._reloading is not None and child.info is None:
            logger.info("no worker process can begin before the code has changed")
            self._missing += 1
            return
        if self._keeper is None and status >= 0:
            # The first one has not even begun, and has said why. (One that a signal has ended could not.)
            self._status = max(status, 1)
            return
        now = self._clock.monotonic()
        if status == NO_STORE and child.info is None:
            # The store is away; starting again does not bring it back.
            self._due.append(now + HOPELESS_SECONDS)
            return
        self._restart(now, f"the last one, {child.pid}, {ended_by(status)}")

    def _restart(self, now: float, reason: str) -> None:
        wait = self._restarting.wait(now)
        if wait is None:
            self._failure = WorkersDied(
                f"worker processes have died more than {MOST} times within a minute; {reason}: "
                "look for the reason in the log, and start again after that"
            )
            self._stop_all(self._plan.drain)
            return
        logger.info("another worker process starts in %g s", wait)
        self._due.append(now + wait)

    def _reload(self) -> None:
        """Replace all processes, if there is new code for them."""
        if self._reloading is None or not self._reloading.has_changed() or self._stops:
            return
        now = self._clock.monotonic()
        self._due += [now] * self._missing
        self._missing = 0
        for child in [one for one in self._children.values() if not one.is_leaving]:
            self._due.append(now)
            self._part_with(child, self._plan.drain)

    # Messages

    def _hear_children(self) -> None:
        for child in list(self._children.values()):
            self._hear(child)
            child.channel.flush()

    def _hear(self, child: Child) -> None:
        try:
            messages = child.channel.receive() if child.is_heard else ()
        except msgspec.MsgspecError as exc:
            # A task has written there, or the child is of a release that we do not know.
            logger.error("worker process %s talks nonsense, and is killed: %s", child.pid, exc)
            child.kill()
            messages = None
        if messages is None:
            child.is_heard = False
            with suppress(KeyError, ValueError):
                self._selector.unregister(child.channel)  # else it would be readable for ever
            return
        for message in messages:
            self._take(child, message)

    def _take(self, child: Child, message: ToSupervisor) -> None:
        match message:
            case Hello():
                self._greet(child, message)
            case Said(info=info):
                child.info = info
                if info.state is WorkerState.STOPPING:
                    child.is_leaving = True
            case Retiring():
                self._retire(child, message)
            case Answered(command_id=command_id, text=text):
                if self._keeper is not None:
                    self._keeper.answer(command_id, text)
            case Goodbye():
                child.has_said_goodbye = True
                child.leave_by = min(child.leave_by, self._clock.monotonic() + HOPELESS_SECONDS)
            case _:
                assert_never(message)

    def _greet(self, child: Child, hello: Hello) -> None:
        if not hello.is_shared:
            raise ConfigError(
                "this store lives in the memory of one process, so several cannot share it: leave "
                "--processes out, or name a store that is shared, such as sqlite:///jobs.db"
            )
        child.info = hello.info
        if self._keeper is None:
            self._keeper = Keeper(
                engine=open_engine(hello.url, key=hello.key),
                clock=self._clock,
                supervisor=os.getpid(),
                children=lambda: tuple(self._children.values()),
                is_paused=lambda: self._is_paused,
            )
            self._keeper.start()
            # One goes ahead: what is wrong with the app is said once, and not by each.
            now = self._clock.monotonic()
            self._due += [now] * (self._plan.processes - 1)
        self._keeper.welcome(child)

    def _retire(self, child: Child, news: Retiring) -> None:
        logger.info("worker process %s retires, because %s", child.pid, news.reason)
        if not child.is_leaving and not self._stops:
            self._due.append(self._clock.monotonic() + news.replace_after)
        child.is_leaving = True

    # Watching

    def _watch(self) -> None:
        """Notice workers that are silent; end those that are so without a reason or do not leave in time."""
        if self._keeper is not None and self._keeper.failure is not None:
            raise self._keeper.failure
        now = self._clock.monotonic()
        for child in self._children.values():
            self._bound(child, now)
            silence = self._silence(child, now)
            child.is_silent = silence > SILENT_SECONDS
            if now >= child.leave_by:
                logger.error("worker process %s does not leave, and is killed", child.pid)
                child.leave_by = inf
                child.kill()
            elif silence > HOPELESS_SECONDS and not any(one.is_within(now) for one in child.page.entries()):
                logger.error(
                    "worker process %s has been silent for %.0f s, and is killed", child.pid, silence
                )
                child.kill()

    def _bound(self, child: Child, now: float) -> None:
        """A worker that plays no more turns has only its hooks left; they may take as long as a drain."""
        if child.page.turned_at == PLAYED and not child.has_played:
            child.has_played = True
            child.leave_by = min(child.leave_by, now + self._plan.drain + LEAVING_SECONDS)

    def _silence(self, child: Child, now: float) -> float:
        """For how long its coordinator has not played a turn, while nothing kept it from doing so."""
        turned_at = child.page.turned_at
        if turned_at <= 0 or self._keeper is None or child.has_said_goodbye:
            return 0.0  # it has not begun, or has ended
        silence = now - max(turned_at, self._watched_since)
        # No call waits as long as that. A process that was stopped in the middle of a transaction may be the
        # very one that everybody waits for: it has the lock of a SQLite file until it is gone.
        if silence > EXCUSED_SECONDS:
            return silence
        return min(silence, now - self._keeper.answers_since(now))

    # Signals

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Signals wake the loop up; afterwards everything is as it was."""
        ours, theirs = socket.socketpair()
        with ExitStack() as stack:
            stack.enter_context(ours)
            stack.enter_context(theirs)
            ours.setblocking(False)
            theirs.setblocking(False)
            self._selector.register(ours, selectors.EVENT_READ)
            if self._plan.is_reloading:
                self._reloading = Reloading(Path.cwd(), partial(theirs.send, b"r"))
                stack.callback(self._reloading.stop)
                self._reloading.start()
            stack.callback(self._selector.close)
            stack.callback(
                signal.set_wakeup_fd, signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            )
            for number in _HEARD:
                stack.callback(
                    signal.signal, number, signal.signal(number, lambda heard, _: self._heard.append(heard))
                )
            yield

    def _hear_signals(self) -> None:
        while self._heard:
            number = self._heard.popleft()
            if number in _STOPS:
                self._stop_all(self._plan.drain if not self._stops else 0.0)
            elif number == signal.SIGUSR1:
                self._show_stacks()
            elif number == signal.SIGTSTP:
                self._pause(is_over=False)
            elif number == signal.SIGCONT and self._is_paused:
                self._pause(is_over=True)

    def _pause(self, *, is_over: bool) -> None:
        logger.info("all workers %s", "go on" if is_over else "are quiet until SIGCONT")
        self._is_paused = not is_over
        for child in self._children.values():
            # One that is just being welcomed may miss what its welcome says.
            child.channel.send(Pause(is_over=is_over))

    def _show_stacks(self) -> None:
        faulthandler.dump_traceback(all_threads=True)
        # Before it is up the signal would kill it.
        self._unshown = deque(child for child in self._children.values() if child.is_up)

    def _show_next(self) -> None:
        """One after the other: stacks are written letter by letter, and several at once nobody could read."""
        if self._unshown and (child := self._unshown.popleft()).pid in self._children:
            # What is silent does not hear SIGUSR1, and nothing in it changes while SIGUSR2 is obeyed.
            child.tell(signal.SIGUSR2 if child.is_silent else signal.SIGUSR1)

    # The end

    def _stop_all(self, drain: float) -> None:
        """Let all workers stop in order; asked again, at once."""
        self._stops += 1
        self._due.clear()
        logger.info("all workers stop; what runs may take another %g s", drain)
        for child in self._children.values():
            self._part_with(child, drain)

    def _part_with(self, child: Child, drain: float) -> None:
        child.is_leaving = True
        child.leave_by = min(child.leave_by, self._clock.monotonic() + drain + LEAVING_SECONDS)
        if child.is_up:
            child.channel.send(Stop(drain=drain))
        else:
            child.kill()  # it holds nothing yet

    def _leave(self) -> None:
        """Leave no process behind, and no lease that could be handed back."""
        for child in self._children.values():
            child.kill()
        while self._children:
            pid, status = os.waitpid(-1, 0)
            child_or_stranger = self._children.pop(pid, None)
            if child_or_stranger is not None:
                self._stops += 1
                self._ended(child_or_stranger, os.waitstatus_to_exitcode(status))
        if self._keeper is not None:
            self._keeper.stop(BURYING_SECONDS)
            if not self._keeper.is_idle and self._failure is None:
                self._failure = StoreUnavailable(
                    "the store does not answer, so the supervisor leaves without a word to it; "
                    "the jobs of its workers are run again when their leases have ended"
                )
