"""`make bench WHAT=compare` measures, judges and names what failed; here without peers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compare.goals import GOALS, Goal
from benchmarks.compare.report import Report, failures
from benchmarks.compare.rows import QUICK, rows
from benchmarks.compare.systems import PEER, SYSTEMS, TOP, System, install, packages, with_base

ALL = [system for systems in SYSTEMS.values() for system in systems]
MEASURES = [measure for row in rows(QUICK) for measure in row.measures]


def test_forebay_and_the_engine_alone_are_compared_and_written_down(tmp_path: Path) -> None:
    words = "--engine sqlite --quick --rounds 1 --here --systems forebay,raw --rows enqueue,drain --out"

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compare", *words.split(), str(tmp_path)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )

    found = json.loads((tmp_path / "sqlite-quick.json").read_text())
    assert found["failed"] == {}
    assert {name: sorted(by) for name, by in found["measures"].items()} == {
        "enqueue one by one": ["forebay", "raw"],
        "CPU of an enqueue": ["forebay", "raw"],
        "drain": ["forebay", "raw"],
        "CPU of a drained job": ["forebay", "raw"],
    }
    assert all(value > 0 for by in found["measures"].values() for rounds in by.values() for value in rounds)
    assert "| enqueue one by one, /s |" in done.stdout
    assert "0.85 x raw" in done.stdout


def test_a_goal_is_a_ratio_of_rounds_that_were_measured_in_turns() -> None:
    goal = Goal(measure="drain", against="peer", least=2)
    found = {"drain": {"forebay": [10.0, 300.0, 50.0], "peer": [4.0, 100.0, 40.0]}}

    assert goal.reached(found) == 2.5  # of 2.5, 3 and 1.25
    assert goal.is_met(2.5)
    assert not goal.is_met(1.9)
    assert goal.reached({"drain": {"forebay": [10.0]}}) is None


def test_the_table_names_the_best_peer_and_what_is_missed() -> None:
    found = {
        "drain": {"forebay": [8_000.0], "dramatiq": [2_000.0], "taskiq": [4_000.0], "raw": [40_000.0]},
        "cold start": {"forebay": [0.2], "dramatiq": [0.4], "taskiq": [0.8]},
    }

    lines = list(Report("redis", SYSTEMS["redis"], MEASURES, found).lines())

    drain, cold = lines[2:4]
    assert drain.startswith("| drain, /s | 8,000 | taskiq 4,000 | 2.00 | 40,000 | 0.20 |")
    assert "8 x dramatiq **MISSED** (4.00)" in drain
    assert cold.startswith("| cold start, s | 0.2 | dramatiq 0.4 | 2.00 | - | - | 0.25 s met")


def test_enqueues_are_compared_with_peers_that_sync_like_ours() -> None:
    found = {
        "enqueue one by one": {"forebay": [2.0], "forebay relaxed": [9.0], "huey": [1.0], "litequeue": [8.0]}
    }

    ours, relaxed = list(Report("sqlite", SYSTEMS["sqlite"], MEASURES, found).lines())[2:4]

    assert "| huey 1 |" in ours
    assert "| litequeue 8 |" in relaxed


def test_failures_of_one_reason_share_a_line() -> None:
    assert list(failures({"a, drain": "no", "a, bulk": "no", "b": "never"})) == [
        "- a, drain; a, bulk: no",
        "- b: never",
    ]


@pytest.mark.parametrize(
    "system", [system for system in ALL if system.kind == PEER], ids=lambda one: one.name
)
def test_every_peer_has_a_driver_and_pinned_packages(system: System) -> None:
    assert (TOP / "benchmarks" / "compare" / "drivers" / f"{system.driver}.py").exists()
    assert any("==" in package for package in packages(system.driver))


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("benchmarks.compare.systems.PEERS", tmp_path / "file")  # where no folder can be made
    peer = next(system for system in ALL if system.kind == PEER)

    with pytest.raises(RuntimeError, match="cannot be installed"):
        install(peer.driver)


@pytest.mark.parametrize("engine", SYSTEMS)
def test_goals_name_what_is_measured(engine: str) -> None:
    full = {measure.name for row in rows(replace(QUICK, backlog=1_000_000)) for measure in row.measures}
    names = {system.name for system in SYSTEMS[engine]}

    for goal in GOALS[engine]:
        assert goal.measure in full
        assert goal.ours in names
        assert goal.against in names | {""}


def test_forebay_is_compared_with_itself_at_another_commit(tmp_path: Path) -> None:
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout.strip()
    words = (
        "--engine sqlite --quick --rounds 1 --here --base HEAD --systems forebay --rows enqueue,drain --out"
    )

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compare", *words.split(), str(tmp_path)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )

    found = json.loads((tmp_path / "sqlite-quick.json").read_text())
    assert found["failed"] == {}
    assert {name: sorted(by) for name, by in found["measures"].items()} == {
        "enqueue one by one": ["forebay", f"forebay {head}"],
        "CPU of an enqueue": ["forebay", f"forebay {head}"],
        "drain": ["forebay", f"forebay {head}"],
        "CPU of a drained job": ["forebay", f"forebay {head}"],
    }
    assert f"| measure | forebay | {head} | times |" in done.stdout


def test_a_base_that_is_no_commit_is_refused_by_its_name() -> None:
    with pytest.raises(SystemExit, match="--base never"):
        with_base(SYSTEMS["sqlite"], "never")
