from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from forebay.cli.doctor.store_content_checks import check_lanes
from forebay.clock import SystemClock
from forebay.domain.job import DEFAULT_QUEUE, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Interrupted
from forebay.domain.queue_counts import LaneCount
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.cli.command_runner import DEADLINE, call, command, environment, make, program, put
from tests.stores.contract import steps

HOUR_MS = 3_600_000


def examined(*words: str, status: int) -> list[dict[str, Any]]:
    """The findings of a doctor who comes to this status."""
    result = call("doctor", *words, "--json")
    assert result.exit_code == status, result.output
    found = json.loads(result.stdout)
    assert found["is_well"] is (status == 0)
    findings: list[dict[str, Any]] = found["findings"]
    return findings


def about(findings: list[dict[str, Any]], what: str) -> list[tuple[str, str]]:
    return [(one["level"], one["message"]) for one in findings if one["about"] == what]


@pytest.mark.shows("R-CLI-20")
def test_a_store_that_is_well(store: Store) -> None:
    findings = examined(status=0)

    assert about(findings, "settings") == [("ok", "url = sqlite:///jobs.db by forebay.toml")]
    whole = Path("jobs.db").absolute()
    message = f"sqlite:///jobs.db ({whole}) answers; engine sqlite, schema "
    assert about(findings, "store")[0][1].startswith(message)
    assert about(findings, "permissions") == [("ok", "this user may write")]
    assert about(findings, "consistency") == [("ok", "jobs, leases, keys and counts agree")]
    assert "No problems found." in call("doctor").stdout


@pytest.mark.shows("R-CLI-20")
def test_what_does_not_add_up_is_a_problem(store: Store, folder: Path) -> None:
    put(store)
    store.promote()  # counts what is new
    with closing(sqlite3.connect(folder / "jobs.db")) as connection:
        connection.execute("delete from forebay_jobs")
        connection.commit()

    findings = examined(status=1)

    [(level, message)] = about(findings, "consistency")
    assert level == "problem"
    assert "queue default counts 1 pending jobs and has 0" in message
    assert about(examined("--quick", status=1), "consistency") == []
    [finding] = [one for one in findings if one["about"] == "consistency"]
    assert finding["todo"] == "restore the store from a backup"


def test_jobs_that_came_due_while_no_worker_ran_need_a_worker_and_no_backup(store: Store) -> None:
    past = a_store_in_the_past(600)
    for _ in range(30):
        put(past, delay_ms=1_000)
    past.close()
    store.acquire_maintenance("promote", 1_000)  # a worker is back, and has not come to these yet

    findings = [one for one in examined(status=1) if one["about"] == "consistency"]

    assert findings[0]["message"].endswith("was due and has not been moved")
    assert "let one run and check again in a minute" in findings[0]["todo"]
    assert [one["message"] for one in findings[20:]] == ["and 10 more of this kind"]


def test_jobs_that_no_worker_runs_are_a_problem_with_a_next_step(store: Store) -> None:
    put(store)

    findings = examined(status=1)

    assert about(findings, "queue default") == [("problem", "1 job waits, and no worker works on it")]
    [finding] = [one for one in findings if one["about"] == "queue default"]
    assert finding["todo"] == "forebay worker package.module:app --queues default"
    assert "PROBLEM  queue default: 1 job waits" in call("doctor").stdout


def test_a_worker_that_is_alive_is_enough(store: Store) -> None:
    put(store)
    store.heartbeat(WorkerInfo(id=WorkerId("w1"), queues=(DEFAULT_QUEUE,)))

    assert about(examined(status=0), "workers") == [("ok", "1 alive")]


def test_a_worker_that_is_silent_is_not(store: Store) -> None:
    put(store)
    clock = ManualClock(now_ms=SystemClock().now_ms() - 2 * HOUR_MS)
    past = open_engine("sqlite:///jobs.db", clock=clock).store()
    past.heartbeat(WorkerInfo(id=WorkerId("w1"), host="there", pid=7, queues=(DEFAULT_QUEUE,)))
    past.close()

    findings = examined(status=1)

    assert ("note", "w1 on there (pid 7) has sent no heartbeat for 2h") in about(findings, "workers")
    assert about(findings, "queue default")[0][0] == "problem"


def test_a_paused_queue_with_jobs_is_worth_a_note(store: Store) -> None:
    put(store)
    call("queues", "pause", "default")

    assert about(examined(status=0), "queue default") == [("note", "it is paused, and 1 job waits")]


def test_a_deleted_queue_with_jobs_is_worth_a_note(store: Store) -> None:
    job = steps.started(store)
    call("queues", "delete", "default", "--force", "--yes")
    store.settle_and_claim(steps.W1, [steps.ended(job, Interrupted())])

    [(level, message)] = about(examined(status=0), "queue default")

    assert level == "note"
    assert message == "it was deleted, and 1 job waits; the sweep moves them to the dead letters"


@pytest.mark.shows("R-CLI-20")
def test_a_job_that_runs_for_hours_is_a_problem(store: Store) -> None:
    clock = ManualClock(now_ms=SystemClock().now_ms() - 2 * HOUR_MS)
    past = open_engine("sqlite:///jobs.db", clock=clock).store()
    job = steps.started(past)
    past.close()

    assert about(examined(status=1), "running") == [
        ("problem", f"1 job for over an hour; {job.id} (t) for 2h")
    ]


def test_dead_letters_are_worth_a_note(store: Store) -> None:
    make(store, JobState.DEAD)

    assert about(examined(status=0), "dead letters") == [("note", "1 job will not be retried")]


def test_parked_jobs_are_a_problem() -> None:
    [finding] = check_lanes([LaneCount(queue=QueueName("mail"), lane="task:x", jobs=3)])

    assert (finding.level, finding.message) == (
        "problem",
        "3 jobs wait for a worker that has the task x",
    )
    assert "aliases=['x']" in finding.todo


@pytest.mark.parametrize(
    ("lane", "message"),
    [
        ("payload:3", "1 job waits for a worker that reads payloads of version 3"),
        ("requires:blobs", "1 job waits for a worker that has the blob store"),
        ("requires:key 2025.a", "1 job waits for a worker that has the key 2025.a"),
    ],
)
def test_what_a_worker_lacks_is_said_in_plain_words(lane: str, message: str) -> None:
    [finding] = check_lanes([LaneCount(queue=QueueName("mail"), lane=lane, jobs=1)])

    assert finding.message == message
    assert finding.todo.endswith("; or cancel the jobs")


def test_jobs_that_wait_for_the_turn_of_their_share_or_for_a_limit_are_no_finding() -> None:
    lanes = ["fairness:acme", "limit:key:tenant:acme"]

    assert list(check_lanes(LaneCount(queue=QueueName("mail"), lane=lane, jobs=3) for lane in lanes)) == []


def test_a_store_that_is_not_there_is_said_by_the_doctor_too() -> None:
    [(level, message)] = about(examined("--url", "sqlite:///typo.db", status=3), "store")

    assert level == "problem"
    assert "there is no store at sqlite:///typo.db" in message


def test_a_file_that_is_no_database_is_said(folder: Path) -> None:
    (folder / "notes.txt").write_text("these are notes and not a database at all" * 50)

    [(level, message)] = about(examined("--url", "sqlite:///notes.txt", status=3), "store")

    assert level == "problem"
    assert "is not a SQLite database" in message


def test_a_store_that_has_no_room_to_write_is_not_well(store: Store, folder: Path) -> None:
    put(store)  # others have it open, so what belongs to it is there

    # No file may grow any more, as on a disk that is full.
    result = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *command("doctor", "--quick")],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert result.returncode == 3, result.stdout
    assert "PROBLEM  store:" in result.stdout
    assert "its disk" in result.stdout


def test_a_variable_that_is_no_setting_is_worth_a_note(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_ULR", "x")

    assert ("note", "FOREBAY_ULR is set in the environment and is not a setting") in about(
        examined(status=0), "settings"
    )


def test_no_setting_is_said_too() -> None:
    assert about(examined(status=3), "settings") == [("ok", "nothing is set; the defaults apply")]


def test_the_app_is_imported(app_folder: Path) -> None:
    program(app_folder, "migrate")
    well = program(app_folder, "doctor", "--json")
    (app_folder / "tasks.py").write_text("import nothing_of_this_name\n")
    broken = program(app_folder, "doctor", "--json")

    assert ("ok", "tasks:app has 2 tasks on default, mail") in about(
        json.loads(well.stdout)["findings"], "app"
    )
    assert (well.returncode, broken.returncode) == (0, 2)
    assert "No module named 'nothing_of_this_name'" in broken.stdout


def test_a_task_that_goes_by_several_names_is_one_task(app_folder: Path) -> None:
    program(app_folder, "migrate")
    with (app_folder / "tasks.py").open("a") as module:
        module.write('\napp.task(name="new", aliases=["old", "older"])(lambda: None)\n')

    found = json.loads(program(app_folder, "doctor", "--json").stdout)["findings"]

    assert ("ok", "tasks:app has 3 tasks on default, mail") in about(found, "app")


def test_a_url_next_to_the_app_s_own_store_is_a_problem(app_folder: Path) -> None:
    for url in ("sqlite:///jobs.db", "sqlite:///other.db"):
        program(app_folder, "migrate", "--url", url)

    apart = program(app_folder, "doctor", "--json", FOREBAY_URL="sqlite:///other.db")
    alike = program(
        app_folder, "doctor", "--json", FOREBAY_URL=f"sqlite:///{app_folder}/./jobs.db?lock_timeout=5"
    )

    found = json.loads(apart.stdout)["findings"]
    assert (apart.returncode, alike.returncode) == (1, 0)
    assert about(found, "store")[0] == (
        "problem",
        "url is sqlite:///other.db by FOREBAY_URL, and tasks:app uses another store",
    )
    [todo] = [one["todo"] for one in found if "another store" in one["message"]]
    assert todo == "leave out url, so that commands use the store of tasks:app"


def test_the_next_step_names_the_real_app(app_folder: Path) -> None:
    program(app_folder, "enqueue", "tasks.greet", "Ada")

    result = program(app_folder, "doctor")

    assert result.returncode == 1
    assert "→ forebay worker tasks:app --queues mail" in result.stdout


# ------------------------------------------------------------------ workers and jobs that are not well


def worker_findings(store: Store, **changes: Any) -> list[tuple[str, str]]:
    """What the doctor says of a worker who says this of itself."""
    store.heartbeat(WorkerInfo(id=WorkerId("w1"), host="here", pid=7, **changes))
    result = call("doctor", "--json")
    return about(json.loads(result.stdout)["findings"], "workers")[1:]


def a_store_in_the_past(seconds: int) -> Store:
    clock = ManualClock(now_ms=SystemClock().now_ms() - seconds * 1_000)
    return open_engine("sqlite:///jobs.db", clock=clock).store()


def test_a_worker_that_is_well_is_only_counted(store: Store) -> None:
    assert worker_findings(store, state=WorkerState.WORKING) == []


@pytest.mark.shows("R-WORK-39", "R-SWEEP-10")
def test_a_stale_worker_is_a_note(store: Store) -> None:
    past = a_store_in_the_past(25)
    past.heartbeat(WorkerInfo(id=WorkerId("w1"), host="here", pid=7))

    found = about(examined(status=0), "workers")
    past.close()

    assert found[0] == ("note", "0 alive")
    assert found[1][0] == "note"
    assert found[1][1].startswith("w1 on here (pid 7) is stale: its last heartbeat was 2")


def test_a_worker_whose_loop_hangs_is_a_problem(store: Store) -> None:
    assert worker_findings(store, state=WorkerState.UNRESPONSIVE) == [
        ("problem", "w1 on here (pid 7) is alive, but its loop is blocked: it claims and settles nothing")
    ]


def test_a_worker_with_jobs_that_do_not_listen_is_a_problem(store: Store) -> None:
    assert worker_findings(store, stuck=2) == [
        ("problem", "w1 on here (pid 7) has 2 jobs that did not stop when told to")
    ]


@pytest.mark.shows("R-EDGE-58", "R-JOB-61")
def test_a_worker_that_stops_for_longer_than_it_may_is_a_problem(store: Store) -> None:
    assert worker_findings(store, state=WorkerState.STOPPING) == []
    assert worker_findings(store, state=WorkerState.STOPPING, is_overdue=True) == [
        ("problem", "w1 on here (pid 7) has been stopping for longer than it may")
    ]


@pytest.mark.shows("R-JOB-61", "R-SWEEP-10")
def test_a_job_that_runs_far_beyond_its_timeout_is_a_problem(store: Store) -> None:
    past = a_store_in_the_past(200)
    job = steps.started(past, timeout_ms=100_000)
    steps.started(past, timeout_ms=190_000)  # the worker is about to end it
    steps.started(past, timeout_ms=None)
    past.close()

    [(level, message)] = about(examined(status=1), "timeouts")

    assert level == "problem"
    assert message.startswith(f"1 job beyond the timeout; {job.id} (t) by 1m")


@pytest.mark.shows("R-JOB-61")
def test_jobs_that_died_without_an_attempt_are_named(store: Store) -> None:
    put(store, queue=QueueName("old"))
    make(store, JobState.DEAD)  # after an attempt
    assert call("queues", "delete", "old", "--force", "--yes").exit_code == 0

    found = about(examined(status=0), "dead letters")

    assert found[0] == ("note", "1 job went from pending to dead without an attempt: queue dropped")
    assert found[1] == ("note", "2 jobs will not be retried")


@pytest.mark.shows("R-EDGE-63", "R-SWEEP-10")
def test_a_pool_in_which_nothing_happens_is_a_problem(store: Store) -> None:
    past = a_store_in_the_past(1_000)
    put(past)
    past.heartbeat(WorkerInfo(id=WorkerId("w1"), queues=(DEFAULT_QUEUE,)))
    store.heartbeat(WorkerInfo(id=WorkerId("w1"), queues=(DEFAULT_QUEUE,)))

    [(level, message)] = about(examined(status=1), "queue default")
    past.close()

    assert level == "problem"
    assert message.startswith("1 job could run, its worker is alive, and no job has started or ended for 16m")


@pytest.mark.shows("R-EDGE-63")
def test_a_pool_that_is_busy_with_long_jobs_is_a_note(store: Store) -> None:
    past = a_store_in_the_past(1_000)
    job = steps.started(past)
    put(past)
    busy = WorkerInfo(id=WorkerId("w1"), queues=(DEFAULT_QUEUE,), running=(job.id,))
    past.heartbeat(busy)
    store.heartbeat(busy)

    [(level, _)] = about(examined(status=0), "queue default")
    past.close()

    assert level == "note"


@pytest.mark.parametrize("state", ["paused", "deleted"])
def test_a_pool_whose_queue_gives_nothing_is_not_to_blame(store: Store, state: str) -> None:
    past = a_store_in_the_past(1_000)
    put(past)
    past.heartbeat(WorkerInfo(id=WorkerId("w1"), queues=(DEFAULT_QUEUE,)))
    store.heartbeat(WorkerInfo(id=WorkerId("w1"), queues=(DEFAULT_QUEUE,)))
    if state == "paused":
        call("queues", "pause", "default")
    else:
        job = steps.start(past)
        call("queues", "delete", "default", "--force", "--yes")
        past.settle_and_claim(steps.W1, [steps.ended(job, Interrupted())])
    past.close()

    [(level, message)] = about(examined(status=0), "queue default")

    assert (level, message.split(",")[0]) == ("note", f"it {'is' if state == 'paused' else 'was'} {state}")


@pytest.mark.parametrize("what", ["completed", "began", "paused", "new worker", "new job"])
def test_a_pool_that_moves_or_may_not_is_well(store: Store, what: str) -> None:
    past = a_store_in_the_past(1_000)
    if what == "completed":
        make(store, JobState.COMPLETED)
    if what == "began":
        steps.started(store)
    put(store if what == "new job" else past)
    info = WorkerInfo(
        id=WorkerId("w1"), queues=(DEFAULT_QUEUE,), paused=(DEFAULT_QUEUE,) if what == "paused" else ()
    )
    if what != "new worker":
        past.heartbeat(info)
    store.heartbeat(info)

    found = about(examined(status=0), "queue default")
    past.close()

    assert found == []
