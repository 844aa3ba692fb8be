"""Simulated worlds keep the promises, play again exactly, and see a fence that is gone."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from evidence.actors import LATE
from evidence.simulate import LEFT_OUT, STORE_CALLS, Found, play
from evidence.world import World
from forebay.domain.job import WorkerId
from forebay.domain.job_states import JobState
from forebay.stores.contract.store import Store
from forebay.stores.memory import settle
from forebay.stores.memory.job_heap import StoredJob

ROOT: Final = Path(__file__).resolve().parents[2]
# Enough for every kind of strike; `make evidence WHAT=simulate` plays more.
SEEDS: Final = range(40)


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Outages and lost leases are what this is about; thousands of lines on them are of no use."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def played(_quiet: None) -> Found:
    return play(SEEDS)


@pytest.mark.shows("R-LEASE-04")
def test_no_run_breaks_a_promise(played: Found) -> None:
    assert played.broken == []


def test_the_runs_are_long_and_eventful(played: Found) -> None:
    assert played.runs == len(SEEDS)
    assert played.fewest_calls >= 200
    assert played.fewest_faults >= 5
    strikes = {"kill", "freeze", "stop", "clock", "store clock", "store clock back", "outage", LATE}
    assert {*played.strikes} == strikes


def test_lock_time_outs_are_among_what_settlements_meet(played: Found) -> None:
    assert played.points["settle_and_claim", "busy"] > 0


def test_every_call_of_the_store_contract_is_played_or_left_out_on_purpose() -> None:
    calls = {name for name in dir(Store) if not name.startswith("_")}

    assert calls == LEFT_OUT | {*STORE_CALLS}


def test_a_run_that_was_too_quiet_shows_nothing_and_says_so() -> None:
    world = World(0)

    assert world._problems() == ["there were only 0 store calls", "there were only 0 faults"]


def test_many_runs_have_to_show_everything() -> None:
    few, many = Found(runs=100), Found(runs=2_000)

    assert few.is_good
    assert not many.is_good
    assert "retrying to dead" in many.missing_moves()
    assert "update_job: answer lost" in many.missing_points()


def test_a_run_plays_again_exactly(tmp_path: Path) -> None:
    for name in ("first", "second"):
        words = [sys.executable, "-m", "evidence.simulate", "--seed", "7", "--runs", "2"]
        words += ["--json", str(tmp_path / name)]
        subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    assert json.loads((tmp_path / "first").read_text()) == json.loads((tmp_path / "second").read_text())


def test_a_store_without_a_fence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that names a running job may end it, whatever attempt it speaks of."""

    def lenient(record: StoredJob | None, attempt: int, worker: WorkerId) -> str | None:
        return None if record is not None and record.job.state is JobState.RUNNING else "not running"

    monkeypatch.setattr(settle, "_refusal", lenient)

    # Some three lives in a hundred show it; it ends with the first.
    assert any(World(seed).play() for seed in range(3_000))
