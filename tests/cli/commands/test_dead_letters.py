from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from forebay.clock import SystemClock
from forebay.domain.job import QueueName
from forebay.domain.job_states import JobState
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.cli.command_runner import answer, call, ids, make, put, refusal
from tests.stores.contract import steps

MAIL = QueueName("mail")
DAY_MS = 86_400_000


@pytest.mark.shows("R-DLQ-05", "R-DLQ-06")
def test_dead_letters_are_listed_by_queue_and_task_with_their_total(store: Store) -> None:
    old, new = make(store, JobState.DEAD, queue=MAIL), make(store, JobState.DEAD)
    make(store, JobState.CANCELLED, queue=QueueName("other"))

    everything = answer("dead", "list")

    assert ids(everything["jobs"]) == [new, old]
    assert (everything["total"], everything["has_more"]) == (2, False)
    assert ids(answer("dead", "list", "--queue", "mail", "--task", "t")["jobs"]) == [old]
    first = answer("dead", "list", "--limit", "1")
    assert (ids(first["jobs"]), first["total"], first["has_more"]) == ([new], 2, True)


@pytest.mark.shows("R-DLQ-02", "R-DLQ-23")
def test_a_dead_letter_shows_every_error_and_when_it_failed(store: Store) -> None:
    job_id = make(store, JobState.DEAD, "ada", priority=7)

    shown = answer("dead", "show", job_id)

    assert (shown["task"], shown["priority"], shown["args"]) == ("t", 7, ["ada"])
    assert shown["reason"] == "Boom: it broke"
    assert [attempt["error"]["traceback"] for attempt in shown["attempts"]] == ["line 1"]
    assert shown["first_failed_at"] == shown["attempts"][0]["ended_at"]
    assert shown["last_failed_at"] == shown["attempts"][-1]["ended_at"]
    assert shown["failed_at"] == shown["finished_at"]


def test_people_read_when_it_failed_and_died(store: Store) -> None:
    shown = call("dead", "show", make(store, JobState.DEAD)).stdout

    for what in ("first failed at", "last failed at", "failed at"):
        assert re.search(rf"^{what} +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ$", shown, re.MULTILINE)


def test_a_job_that_is_not_dead_is_no_dead_letter(store: Store) -> None:
    job_id = put(store)

    error = refusal("dead", "show", job_id)

    assert error["status"] == 5
    assert error["message"] == f"job {job_id} is pending, not dead; see `forebay jobs show`"


@pytest.mark.shows("R-DLQ-07", "R-DLQ-09")
def test_one_is_revived_into_another_queue_with_fresh_failures(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)
    store.save_queue(MAIL)

    answer("dead", "revive", job_id, "--to", "mail")

    job = steps.look(reader, job_id)
    assert (job.state, job.queue, job.failures) == (JobState.PENDING, "mail", 0)


@pytest.mark.shows("R-DLQ-13")
def test_many_are_revived_by_conditions_and_cancelled_jobs_are_not(store: Store, reader: Reader) -> None:
    dead = make(store, JobState.DEAD, priority=5)
    low = make(store, JobState.DEAD, priority=1)
    cancelled = make(store, JobState.CANCELLED, priority=5, queue=MAIL)

    assert answer("dead", "revive", "--priority-from", "5", "--yes") == {"revived": 1}

    found = steps.states(reader, [dead, low, cancelled])
    assert found == [JobState.PENDING, JobState.DEAD, JobState.CANCELLED]


@pytest.mark.shows("R-DLQ-11")
def test_old_ones_are_purged_and_young_ones_stay(store: Store, reader: Reader) -> None:
    clock = ManualClock(now_ms=SystemClock().now_ms() - 10 * DAY_MS)
    past = open_engine("sqlite:///jobs.db", clock=clock).store()
    old = make(past, JobState.DEAD, queue=MAIL)
    past.close()
    young = make(store, JobState.DEAD, queue=MAIL)

    assert answer("dead", "purge", "--queue", "mail", "--older-than", "7d", "--yes") == {"deleted": 1}

    assert reader.jobs([old]) == [None]
    assert steps.look(reader, young).state is JobState.DEAD


@pytest.mark.shows("R-DLQ-10")
def test_one_is_purged_by_its_id(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)

    assert answer("dead", "purge", job_id, "--yes")["deleted"] == 1
    assert reader.jobs([job_id]) == [None]


@pytest.mark.parametrize("act", ["purge", "revive"])
def test_a_job_that_is_not_dead_is_left_alone_when_it_is_named(
    act: str, store: Store, reader: Reader
) -> None:
    waiting, cancelled = put(store), make(store, JobState.CANCELLED, queue=MAIL)

    assert refusal("dead", act, waiting, "--yes")["status"] == 5
    assert refusal("dead", act, cancelled, "--yes")["status"] == 5
    assert steps.states(reader, [waiting, cancelled]) == [JobState.PENDING, JobState.CANCELLED]


@pytest.mark.shows("R-DLQ-21")
def test_dead_letters_are_grouped_and_one_group_is_revived_or_purged(store: Store, reader: Reader) -> None:
    boom = [make(store, JobState.DEAD, queue=MAIL), make(store, JobState.DEAD)]
    make(store, JobState.CANCELLED, queue=MAIL)

    found = answer("dead", "groups")

    [group] = found["groups"]
    assert (group["message"], group["jobs"], group["tasks"]) == ("Boom: it broke", 2, {"t": 2})
    assert (found["jobs"], found["is_complete"], found["others"]) == (2, True, 0)
    assert "1 groups of 2 jobs" in call("dead", "groups").stdout
    assert answer("dead", "groups", "--newest", "1")["is_complete"] is False
    assert "there are older ones" in call("dead", "groups", "--newest", "1").stdout
    assert answer("dead", "groups", "--task", "none")["groups"] == []
    assert answer("dead", "revive", "--group", "0" * 16, "--yes") == {"revived": 0}
    assert answer("dead", "purge", "--group", group["id"], "--queue", "default", "--yes") == {"deleted": 1}
    assert reader.jobs([boom[1]]) == [None]
    assert refusal("dead", "revive", "--group", "what", "--yes")["status"] == 2


@pytest.mark.shows("R-DLQ-19")
def test_the_payload_of_a_dead_letter_is_written_as_it_is(
    store: Store, reader: Reader, tmp_path: Path
) -> None:
    job_id = make(store, JobState.DEAD, "ada")
    payload = steps.look(reader, job_id).payload
    path = tmp_path / "payload"

    assert base64.b64decode(answer("dead", "payload", job_id)["payload_base64"]) == payload
    assert call("dead", "payload", job_id).stdout_bytes == payload
    assert answer("dead", "payload", job_id, "--output", str(path)) == {
        "path": str(path),
        "bytes": len(payload),
    }
    assert path.read_bytes() == payload
    assert refusal("dead", "payload", put(store))["status"] == 5
    assert refusal("dead", "payload", "absent")["status"] == 4
