from __future__ import annotations

from threading import Thread

import pytest

from forebay.domain.job import QueueName
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed
from forebay.domain.queue import QueueState
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, make, put, refusal
from tests.stores.contract import steps

MAIL = QueueName("mail")


@pytest.mark.shows("R-QUEUE-10", "R-QUEUE-11")
def test_queues_are_listed_with_their_jobs_by_state(store: Store) -> None:
    put(store)
    make(store, JobState.DEAD, queue=MAIL)

    listed = answer("queues", "list")["queues"]

    assert [(queue["name"], queue["counts"]["pending"], queue["counts"]["dead"]) for queue in listed] == [
        ("default", 1, 0),
        ("mail", 0, 1),
    ]


def test_queues_are_listed_with_the_time_that_what_is_pending_takes(store: Store) -> None:
    put(store, queue=QueueName("idle"))
    make(store, JobState.COMPLETED, queue=MAIL)
    put(store, queue=MAIL)
    put(store, queue=MAIL)
    make(store, JobState.COMPLETED)

    listed = answer("queues", "list")["queues"]
    page = call("queues", "list").stdout.splitlines()

    assert {queue["name"]: queue["drain_ms"] for queue in listed} == {
        "default": 0,
        "idle": None,
        "mail": 120_000,
    }
    assert [line.split()[-1] for line in page if line.startswith(("idle", "mail"))] == ["?", "2m"]
    assert answer("queues", "show", "mail")["drain_ms"] == 120_000
    assert "2m" in call("queues", "show", "mail").stdout
    assert "unknown" in call("queues", "show", "idle").stdout


def test_no_queues_are_an_empty_list(store: Store) -> None:
    assert answer("queues", "list") == {"queues": []}
    assert call("queues", "list").stdout == "(none)\n"


@pytest.mark.shows("R-CLI-05")
@pytest.mark.parametrize("command", [("inspect",), ("queues", "show")])
def test_a_queue_is_shown_with_its_length_and_what_comes_next(command: tuple[str, ...], store: Store) -> None:
    low, high = put(store, "a", "b", "c", "d"), put(store, 1, priority=9)

    shown = answer(*command, "default", "--limit", "10")
    one = answer(*command, "default", "--limit", "1")
    page = call(*command, "default").stdout

    assert shown["length"] == 2
    assert [(job["id"], job["task"], job["args"]) for job in shown["next"]] == [
        (high, "t", [1]),
        (low, "t", ["a", "b", "c", "d"]),
    ]
    assert [job["id"] for job in one["next"]] == [high]
    assert '"a", "b", "c"\n' in page


def test_people_read_settings_as_they_are_written(store: Store) -> None:
    answer("queues", "create", "mail", "lease=90s", "keep_finished=0")

    shown = call("queues", "show", "mail").stdout

    assert "mode=aging, weight=1, lease=90s, max_length=none, " in shown
    assert "keep_finished=0, keep_dead=30d, archive=false, keep_archive=90d" in shown


def test_an_undecodable_job_is_shown_as_one(store: Store) -> None:
    steps.put(store, payload=b"broken")

    assert "does not begin with the header of a payload" in call("inspect", "default").stdout


@pytest.mark.shows("R-QUEUE-01")
def test_a_queue_is_created_with_settings(store: Store, reader: Reader) -> None:
    made = answer("queues", "create", "mail", "weight=3", "lease=1m", "archive=true", "mode=fifo")

    queue = steps.queue_of(reader, MAIL)
    assert (made["name"], made["state"], made["settings"]["weight"]) == ("mail", "active", 3)
    assert (queue.settings.lease_ms, queue.settings.archive, queue.settings.mode) == (60_000, True, "fifo")
    assert refusal("queues", "create", "mail")["status"] == 5


def test_a_queue_with_a_wrong_name_is_not_created(store: Store, reader: Reader) -> None:
    error = refusal("queues", "create", "a:b")

    assert (error["kind"], error["status"]) == ("InvalidJob", 2)
    assert reader.queues() == []


@pytest.mark.shows("R-QUEUE-03")
def test_part_of_the_settings_is_changed(store: Store, reader: Reader) -> None:
    answer("queues", "create", "mail", "weight=3", "max_length=5")

    answer("queues", "configure", "mail", "max_length=none", "keep_dead=90d", "lease_ms=2000")

    settings = steps.queue_of(reader, MAIL).settings
    assert (settings.weight, settings.max_length, settings.lease_ms) == (3, None, 2_000)
    assert settings.keep_dead_ms == 90 * 86_400_000


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("weight=0", "weight must be a whole number from 1 to 1000"),
        ("weight=many", "Expected `int`, got `str`"),
        ("wieght=3", "There is no queue setting 'wieght'; there are mode, weight, lease"),
        ("lease=soon", "'soon' is not a duration; write 30s, 5m, 2h, 7d or 250ms"),
        ("weight", "'weight' is not KEY=VALUE"),
        ("mode=lifo", "'lifo'"),
        ("max_length=6", "max_length is given twice"),
    ],
)
def test_a_wrong_setting_changes_nothing(setting: str, complaint: str, store: Store, reader: Reader) -> None:
    answer("queues", "create", "mail")

    error = refusal("queues", "configure", "mail", "max_length=5", setting)

    assert error["status"] == 2
    assert complaint in error["message"]
    assert steps.queue_of(reader, MAIL).settings.max_length is None


def test_a_change_of_nothing_names_the_settings(store: Store) -> None:
    answer("queues", "create", "mail")

    assert "the settings are mode, weight, lease" in refusal("queues", "configure", "mail")["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("show", "x"),
        ("configure", "x", "weight=2"),
        ("pause", "x"),
        ("resume", "x"),
        ("drain", "x"),
        ("purge", "x", "--yes"),
        ("delete", "x", "--yes"),
    ],
)
def test_a_mistyped_queue_is_not_created(words: tuple[str, ...], store: Store, reader: Reader) -> None:
    assert refusal("queues", *words)["status"] == 4
    assert reader.queues() == []


@pytest.mark.shows("R-QUEUE-05", "R-QUEUE-06", "R-QUEUE-14")
def test_a_queue_is_paused_resumed_and_drained(store: Store, reader: Reader) -> None:
    answer("queues", "create", "mail")

    states = [answer("queues", word, "mail")["state"] for word in ("pause", "resume", "drain")]

    assert states == ["paused", "active", "draining"]
    assert steps.queue_of(reader, MAIL).state is QueueState.DRAINING
    events = [event for _, event in reader.audit() if event.kind is EventKind.QUEUE_CHANGED]
    assert len(events) == 4
    assert all(event.actor and event.actor.startswith("cli:") for event in events)


def test_draining_can_be_awaited(store: Store) -> None:
    job = steps.started(store)
    settling = Thread(target=lambda: store.settle_and_claim(steps.W1, [steps.ended(job, Completed())]))
    settling.start()

    drained = answer("queues", "drain", "default", "--wait", "--timeout", "100s")

    settling.join()
    assert drained["counts"]["live"] == 0


def test_draining_gives_up_in_time_and_goes_on(store: Store, reader: Reader) -> None:
    put(store)

    error = refusal("queues", "drain", "default", "--wait", "--timeout", "0")

    assert error["status"] == 6
    assert "queue default is draining and still has 1 job" in error["message"]
    assert steps.queue_of(reader).state is QueueState.DRAINING
    assert refusal("queues", "drain", "default", "--timeout", "1s")["status"] == 2


@pytest.mark.shows("R-QUEUE-07")
def test_a_purge_removes_what_waits_and_leaves_what_runs_or_has_ended(store: Store, reader: Reader) -> None:
    running = steps.started(store, queue=MAIL, priority=9)
    final = make(store, JobState.DEAD)
    waiting = [put(store, queue=MAIL), put(store, queue=MAIL, delay_ms=60_000)]
    other = put(store)

    assert "Delete 2 jobs" in refusal("queues", "purge", "mail")["message"]
    assert answer("queues", "purge", "mail", "--yes") == {"deleted": 2}
    assert reader.jobs(waiting) == [None, None]
    assert steps.states(reader, [running.id, final, other]) == [
        JobState.RUNNING,
        JobState.DEAD,
        JobState.PENDING,
    ]
    assert answer("queues", "purge", "default", "--state", "dead", "--yes") == {"deleted": 1}


@pytest.mark.shows("R-QUEUE-04", "R-DLQ-20")
def test_a_queue_with_jobs_is_deleted_by_force_alone(store: Store, reader: Reader) -> None:
    job_id = put(store, queue=MAIL)

    assert refusal("queues", "delete", "mail", "--yes")["status"] == 5
    assert "add --yes" in refusal("queues", "delete", "mail", "--force")["message"]
    assert steps.queue_of(reader, MAIL).state is QueueState.ACTIVE

    assert answer("queues", "delete", "mail", "--force", "--yes") == {"deleted": "mail", "live_jobs": 1}
    assert steps.look(reader, job_id).reason == "queue dropped"
    assert answer("queues", "list")["queues"] == []


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (1, "1 job in it goes to the dead letters, or ends if it runs"),
        (2, "2 jobs in it go to the dead letters, or end if they run"),
    ],
)
def test_the_question_about_a_queue_with_jobs_is_a_sentence(count: int, message: str, store: Store) -> None:
    steps.put_many(store, count, queue=MAIL)

    error = refusal("queues", "delete", "mail", "--force")

    assert error["message"].startswith(f"Delete queue mail in sqlite:///jobs.db? {message}.")


def test_a_deleted_queue_has_no_pause_and_is_created_again(store: Store, reader: Reader) -> None:
    answer("queues", "create", "mail")
    answer("queues", "delete", "mail", "--yes")

    assert refusal("queues", "pause", "mail")["status"] == 5
    assert answer("queues", "create", "mail")["state"] == "active"
