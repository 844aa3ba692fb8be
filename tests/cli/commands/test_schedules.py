"""`forebay schedules`."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from forebay.domain.schedule import Overlap, Schedule, ScheduleDefinition
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.cli.command_runner import DEADLINE, TASKS, answer, call, command, environment, refusal
from tests.stores.support import new_job
from tests.worker.support import eventually


@pytest.fixture
def app(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of an app that `pyproject.toml` names; each has another name, as a module is loaded once."""
    name = f"tasks_{uuid4().hex}"
    (folder / f"{name}.py").write_text(TASKS)
    (folder / "pyproject.toml").write_text(f'[tool.forebay]\napp = "{name}:app"\n')
    monkeypatch.syspath_prepend(folder)
    return name


@pytest.fixture
def declaring(folder: Path, app: str) -> None:
    """An app that declares two schedules."""
    with (folder / f"{app}.py").open("a") as tasks:
        tasks.write('app.cron("@daily", name="daily", args=["Ada"])(greet)\n')
        tasks.write('app.every(60, name="often", kwargs={"why": "no"})(fail)\n')


def save(store: Store, name: str = "nightly", **changes: object) -> None:
    definition = ScheduleDefinition(name=name, job=new_job(), cron="0 2 * * *", **changes)  # type: ignore[arg-type]
    assert store.save_schedule(Schedule(definition=definition, next_run_at=4_000_000_000_000))


@pytest.mark.shows("R-SCHED-21", "R-SCHED-22", "R-SCHED-25")
def test_a_schedule_is_added_listed_and_shown(app: str) -> None:
    added = answer(
        *("schedules", "add", "hello", f"{app}.greet", "Ada", "times:=2", "--cron", "0 9 * * MON"),
        *("--tz", "Europe/Berlin", "--overlap", "skip", "--jitter", "30s", "--priority", "7"),
    )

    [listed] = answer("schedules")["schedules"]
    shown = answer("schedules", "show", "hello", "--runs", "2")
    page = call("schedules", "show", "hello").stdout

    assert listed == added
    expected = {"cron": "0 9 * * MON", "overlap": "skip", "jitter_ms": 30_000, "priority": 7, "queue": "mail"}
    assert expected.items() <= added.items()
    assert added["when"] == "0 9 * * MON (Europe/Berlin)"
    assert (shown["args"], shown["kwargs"], shown["history"]) == (["Ada"], {"times": 2}, [])
    assert [run[:4] for run in shown["next_runs"]] == [added["next_run_at"][:4]] * 2
    assert "0 9 * * MON (Europe/Berlin)" in page
    assert "0 fired, 0 skipped, 0 failed" in page


@pytest.mark.shows("R-SCHED-11", "R-SCHED-12")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("add", "x", "tasks.greet", "Ada", "--cron", "0 0 31 2 *"), 2, "no date ever matches"),
        (("add", "x", "tasks.greet", "Ada", "--cron", "@daily", "--tz", "Mars/Olympus"), 2, "no time zone"),
        (("add", "x", "tasks.absent", "--cron", "@daily"), 2, "no task is called"),
        (("add", "x", "tasks.greet", "--cron", "@daily"), 2, "cannot be called"),
        (("add", "x", "tasks.greet", "Ada", "--at", "2001-01-01T00:00Z"), 2, "lies in the past"),
        (("add", "x", "tasks.greet", "Ada", "--at", "soon"), 2, "is not a time"),
        (("update", "x"), 2, "Give a change"),
        (("next",), 2, "Name a schedule"),
        (("next", "x", "--cron", "@daily"), 2, "Name a schedule"),
        *(((word, "x"), 4, "no schedule") for word in ("show", "history", "next", "pause", "resume", "fire")),
        (("remove", "x", "--yes"), 4, "no schedule"),
        (("update", "x", "--cron", "@daily"), 4, "no schedule"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_stored(
    app: str, words: tuple[str, ...], status: int, message: str
) -> None:
    call("migrate")

    error = refusal("schedules", *(word.replace("tasks.", f"{app}.") for word in words))

    assert (error["status"], message in error["message"]) == (status, True), error
    assert answer("schedules") == {"schedules": []}


def test_only_an_app_can_add(store: Store) -> None:
    assert "name the app" in refusal("schedules", "add", "x", "t", "--cron", "@daily")["message"]


@pytest.mark.shows("R-SCHED-24", "R-SCHED-26", "R-SCHED-27")
def test_a_schedule_is_paused_resumed_and_changed(store: Store, reader: Reader) -> None:
    save(store)

    paused = answer("schedules", "pause", "nightly")
    assert answer("schedules", "list", "--enabled") == {"schedules": []}
    assert "paused" in call("schedules").stdout
    resumed = answer("schedules", "resume", "nightly")
    changed = answer("schedules", "update", "nightly", "--every", "90m", "--catch-up", "none")

    assert (paused["is_paused"], paused["check_at"]) == (True, None)
    assert (resumed["is_paused"], resumed["check_at"] is not None) == (False, True)
    assert (changed["cron"], changed["every_ms"], changed["catch_up"]) == (None, 5_400_000, "none")
    events = [event for _, event in reader.audit()]
    assert {event.actor for event in events[:3]} == {events[0].actor}
    assert events[0].actor


def test_a_schedule_is_fired_by_hand_and_its_history_told(store: Store, reader: Reader) -> None:
    save(store)

    fired = answer("schedules", "fire", "nightly")

    assert fired["is_new"] is True
    [line] = answer("schedules", "history", "nightly")["history"]
    assert (line["status"], line["job_id"]) == ("enqueued", fired["id"])
    assert fired["id"] in call("schedules", "history", "nightly").stdout
    assert reader.jobs([fired["id"]])[0] is not None


@pytest.mark.shows("R-MET-50", "R-ALERT-25", "R-SCHED-52")
def test_the_share_of_runs_that_were_missed_in_the_last_hour_is_told(store: Store) -> None:
    call("migrate")
    assert answer("schedules", "missed")["rate"] is None
    save(store, "often")
    save(store, "alone", overlap=Overlap.SKIP)
    for name in ("often", "often", "alone", "alone"):
        call("schedules", "fire", name)

    result = answer("schedules", "missed")
    page = call("schedules", "missed", "--window", "90m").stdout

    assert (result["runs"], result["missed"], result["rate"], result["is_complete"]) == (4, 1, 0.25, True)
    [one] = result["schedules"]
    assert (one["name"], one["runs"], one["missed"], one["rate"]) == ("alone", 2, 1, 0.5)
    assert ("50.0%" in page, "25.0%" in page, "often" in page) == (True, True, False)


@pytest.mark.shows("R-SCHED-23")
def test_a_schedule_is_removed_after_a_question(store: Store, reader: Reader) -> None:
    save(store, is_declared=True)

    assert call("schedules", "remove", "nightly").exit_code == 2
    assert answer("schedules", "remove", "nightly", "--yes") == {"removed": "nightly"}

    assert reader.schedules() == []


def test_the_next_runs_of_a_saved_schedule_are_shown(store: Store) -> None:
    save(store, "nightly")

    assert len(answer("schedules", "next", "nightly", "--runs", "2")["next_runs"]) == 2
    assert call("schedules", "next", "weekly").exit_code != 0


def test_the_next_runs_of_a_line_can_be_looked_at_without_any_store() -> None:
    found = answer("schedules", "next", "--cron", "0 0 1 1 *", "--runs", "2")["next_runs"]
    page = call("schedules", "next", "--cron", "30 2 * * *", "--tz", "America/New_York").stdout

    assert [run[4:] for run in found] == ["-01-01T00:00:00.000Z"] * 2
    assert page.splitlines()[0].split() == ["next", "runs", "America/New_York"]
    assert all(line.endswith("02:30:00") or line.endswith("03:00:00") for line in page.splitlines()[1:])


def test_sync_saves_what_is_declared_and_removes_what_is_not_any_more(declaring: None) -> None:
    engine = open_engine("sqlite:///jobs.db")
    store = engine.store()
    save(store, "gone", is_declared=True)
    save(store, "by hand")
    store.close()

    first = answer("schedules", "sync", "--yes")
    second = answer("schedules", "sync")

    assert first == {"saved": 2, "removed": ["gone"], "declared": ["daily", "often"]}
    assert second == {"saved": 0, "removed": [], "declared": ["daily", "often"]}
    assert [one["name"] for one in answer("schedules")["schedules"]] == ["by hand", "daily", "often"]
    reader = engine.reader()
    assert [event.actor == "" for _, event in reader.audit()] == [False] * 3 + [True] * 2
    reader.close()


def test_sync_asks_before_it_removes(declaring: None) -> None:
    store = open_engine("sqlite:///jobs.db").store()
    save(store, "gone", is_declared=True)
    store.close()

    assert call("schedules", "sync").exit_code != 0

    assert [one["name"] for one in answer("schedules")["schedules"]] == ["gone"]


@pytest.mark.shows("R-SCHED-38", "R-SDK-19")
def test_the_doctor_notices_that_no_scheduler_fires(store: Store) -> None:
    assert "schedules" not in {one["about"] for one in answer("doctor")["findings"]}
    definition = ScheduleDefinition(name="late", job=new_job(), cron="@daily")
    store.save_schedule(Schedule(definition=definition, next_run_at=1_800_000, check_at=1_800_000))

    result = call("doctor")

    assert result.exit_code == 1
    assert "1 of 1 were due and have not been fired; late for" in result.stdout


# ------------------------------------------------------------------ a scheduler that runs alone


@pytest.mark.shows("R-CLI-02", "R-SCHED-30")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_scheduler_fires_until_it_is_told_to_stop(declaring: None, folder: Path, number: int) -> None:
    process = subprocess.Popen(
        command("scheduler", "--polling-interval", "30s", "--json"),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        reader = eventual_reader(folder)
        store = open_engine(f"sqlite:///{folder / 'jobs.db'}").store()
        save(store, "soon")
        soon = reader.schedules(["soon"])[0]
        assert store.save_schedule(replace(soon, next_run_at=reader.now(), check_at=reader.now()))
        eventually(lambda: reader.schedules(["soon"])[0].enqueued_runs == 1, DEADLINE)
        process.send_signal(number)
        output, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 0
    assert json.loads(output)["enqueued"] >= 1
    assert [one.name for one in reader.schedules()] == ["daily", "often", "soon"]
    store.close()
    reader.close()


def eventual_reader(folder: Path) -> Reader:
    """A handle to look, once the scheduler has saved what its app declares."""
    eventually((folder / "jobs.db").exists, DEADLINE)
    reader = open_engine(f"sqlite:///{folder / 'jobs.db'}").reader()
    eventually(lambda: len(reader.schedules()) == 2, DEADLINE)
    return reader
