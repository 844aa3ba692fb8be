"""Interrupts at random moments of Forebay's own calls: none leaves a lock locked or a handle half used.

Each job makes one kind of call in a loop until it is interrupted, on every engine. A lock that stays locked
stops the next job of its kind; a store whose change was cut in half shows in its health.
"""

from __future__ import annotations

import gc
import json
import logging
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Final

import pytest

from forebay import Forebay, current_job
from forebay.app.consumer import Consumer
from forebay.app.outage_buffer import Buffer
from forebay.clock import SystemClock
from forebay.compat.task_queue.function_registry import FunctionRegistry
from forebay.compat.task_queue.shutdown_gate import ShutdownGate
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import JobId
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Cancelled, Interrupted
from forebay.stores.id_generator import new_id
from forebay.worker.executors.thread_executor import ThreadExecutor
from forebay.worker.progress_buffer import ProgressBuffer
from forebay.worker.task_invoker import Invoker, JobInterrupted
from tests.urls import ENGINES, lent_url
from tests.worker.support import Collected, an_assignment

ROUNDS: Final = 40  # for each kind of call
SECONDS: Final = 4.0  # on a busy machine fewer rounds must do
FEWEST: Final = 3
HANGS: Final = 60.0  # nothing takes this long unless it waits for a lock that is never given back


def in_time(call: Callable[[], object]) -> None:
    """Make a call on a thread that may hang, and see that it comes back."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as exc:
            raised.append(exc)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS)
    assert not thread.is_alive(), "it waits for a lock that is never given back"
    assert not raised, raised


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forebay]:
    """An app on each engine. Its store has no problems afterwards, and can be closed."""
    with lent_url(request.param, tmp_path) as url:
        app = Forebay(url)
        yield app
        found: list[object] = []
        in_time(lambda: found.append(app.client.read(lambda reader: reader.health()).problems))
        in_time(app.close)
        assert found == [()]


Calls = dict[str, Callable[[], object]]


@pytest.fixture
def _hasty_threads() -> Iterator[None]:
    """Threads change places as often as they can. No garbage is collected: Python swallows an interrupt that
    is heard in a callback of the collector."""
    usual = sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(0.000_001)
    yield
    sys.setswitchinterval(usual)
    gc.enable()


class Prey:
    """The calls that tasks can make, by name, on one app."""

    def __init__(self, app: Forebay) -> None:
        self._app = app
        self._leaf = app.task(name="leaf", queue="elsewhere")(_leaf)
        self._handle = self._leaf.enqueue()
        self._consumer: Consumer = app.consumer()
        self._entrance = ShutdownGate("closed")
        self._functions = FunctionRegistry(app, "elsewhere")
        self._handler = logging.Handler()
        self._handler.emit = lambda record: None  # type: ignore[method-assign]
        self.logger = logging.getLogger("tests.interrupted")
        self.logger.addHandler(self._handler)
        self.logger.propagate = False
        self.logger.setLevel(logging.INFO)
        self.buffer = Buffer(app)

    def calls(self) -> Calls:
        one = self._leaf.job()
        client, handle = self._app.client, self._handle
        return {
            "enqueue": self._leaf.enqueue,
            "enqueue_many": lambda: client.enqueue([one, one], atomic=False),
            "enqueue_beside_others": lambda: client.enqueue([one]),
            "refresh": handle.refresh,
            "cancel": lambda: handle.cancel("enough"),
            "update": lambda: client.update(handle.id, JobUpdate(priority=3)),
            "dead": self._app.dead_letters.failure_groups,
            "claim": self._claim,
            "buffer": lambda: self.buffer.enqueue(one),
            "progress": lambda: current_job().progress(1, 2),
            "log": lambda: current_job().log("a line"),
            "job_logger": lambda: current_job().logger.debug("a line"),
            "logging": lambda: self.logger.info("a line"),
            "new_id": new_id,
            "entrance": self._enter,
            "functions": lambda: self._functions.task(json.dumps),
            "limits": self._app.limits.list,
        }

    def _claim(self) -> None:
        for job in self._consumer.claim(2, queue="elsewhere"):
            self._consumer.release(job)

    def _enter(self) -> None:
        with uninterrupted, self._entrance.enter():
            pass

    def close(self) -> None:
        self.logger.removeHandler(self._handler)
        self._entrance.close(HANGS)
        assert self.buffer.close(HANGS) == 0
        self._consumer.close()


def _leaf() -> None:
    """Never run."""


class Hunt:
    """One task thread that makes calls until it is interrupted, and the one that interrupts it."""

    def __init__(self, app: Forebay, prey: Prey) -> None:
        self._inbox = Collected()
        self._buffer = ProgressBuffer(SystemClock(), self._inbox.notify)
        self._dice = random.Random(7)
        self._calls = prey.calls()
        self._began: list[str] = []
        app.task(name="hunted")(self._run)
        self.executor = ThreadExecutor(1, Invoker(app.registry), self._inbox, SystemClock())

    def _run(self, name: str, kind: str) -> None:
        call = self._calls[kind]
        self._began.append(name)
        while True:
            call()

    def kinds(self) -> list[str]:
        return list(self._calls)

    def round(self, number: int, kind: str) -> None:
        """Interrupt one job that makes this call, and see that it ends."""
        name = f"{kind}-{number}"
        assignment = an_assignment("hunted", name, kind, id=JobId(name))
        assignment.context.progress_sink = self._buffer
        self.executor.submit(assignment)
        ends = monotonic() + HANGS
        while name not in self._began[-1:] and monotonic() < ends:
            pass
        pause = monotonic() + self._dice.uniform(0.0, 0.001)
        while monotonic() < pause:
            pass
        self.executor.interrupt(assignment, JobInterrupted("hunted"))
        outcome = self._inbox.of(assignment, HANGS)
        assert isinstance(outcome, (Interrupted, Cancelled)), (name, outcome)

    def once(self) -> None:
        """Make every call that tasks can make without a job, on this thread."""
        for kind in set(self._calls) - {"progress", "log", "job_logger"}:
            self._calls[kind]()


@pytest.mark.usefixtures("_hasty_threads")
def test_an_interrupted_call_leaves_nothing_locked_and_nothing_half_done(app: Forebay) -> None:
    prey = Prey(app)
    hunt = Hunt(app, prey)
    hunt.executor.start()
    until = monotonic() + SECONDS
    for number in range(ROUNDS):
        for kind in hunt.kinds():
            hunt.round(number, kind)
        if monotonic() > until and number >= FEWEST:
            break
    hunt.executor.close()
    in_time(hunt.once)
    in_time(prey.close)
