"""A worker program whose loop hangs for good ends, so that the service manager starts a new one."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from forebay import Forebay
from forebay.cli.errors import ExitStatus, status_of
from forebay.cli.worker_runner import run
from forebay.errors import WorkersDied
from forebay.stores.contract.store import Store
from forebay.worker.worker import Worker
from tests.app.watched_engine import WatchedEngine
from tests.worker.support import DEADLINE


@pytest.mark.shows("R-WORK-21")
def test_the_program_ends_when_its_loop_hangs_for_good(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.worker.coordinator_watchdog.HOPELESS_SECONDS", 0.2)
    go_on = Event()

    def hang(name: str, args: tuple[Any, ...]) -> None:
        if name == "settle_and_claim":
            go_on.wait(DEADLINE)

    app = Forebay("sqlite:///jobs.db")
    worker = Worker(WatchedEngine(app.engine, hang).contract, app.registry)
    try:
        with pytest.raises(WorkersDied, match="hangs and will not go on") as raised:
            run(app, worker, drain=1)
    finally:
        go_on.set()
        worker.stop(0)

    assert status_of(raised.value) == ExitStatus.GAVE_UP
