from __future__ import annotations

import json
import re
from threading import Thread

import pytest

from forebay.clock import SystemClock
from forebay.domain.job import QueueName
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Completed, Failed, Interrupted
from forebay.domain.progress import LogLine, Progress, ProgressUpdate, StepResult
from forebay.domain.retry_policy import RetryPolicy
from forebay.payload import masking
from forebay.payload.codec import encode_result
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.cli.command_runner import answer, call, ids, make, put, refusal
from tests.stores.contract import steps
from tests.stores.support import WORKER, claim

MAIL = QueueName("mail")


def test_jobs_are_listed_newest_first_with_what_people_ask_for(store: Store) -> None:
    first, second = put(store, 1), put(store, 2, queue=MAIL, task="mail.send", priority=7, tags=("red",))

    listed = answer("jobs", "list")

    assert ids(listed["jobs"]) == [second, first]
    assert listed["after"] is None
    newest = listed["jobs"][0]
    assert (newest["queue"], newest["task"], newest["state"]) == ("mail", "mail.send", "pending")
    assert (newest["priority"], newest["tags"]) == (7, ["red"])
    assert newest["created_at"].endswith("Z")


def test_a_long_list_goes_on_where_it_ended(store: Store) -> None:
    made = [put(store, number) for number in range(5)]

    first = answer("jobs", "list", "--limit", "3")
    rest = answer("jobs", "list", "--after", first["after"])

    assert ids(first["jobs"] + rest["jobs"]) == made[::-1]


def test_a_list_may_be_longer_than_a_page_of_the_store(store: Store) -> None:
    steps.put_many(store, 1_200)

    assert len(answer("jobs", "list", "--limit", "1100")["jobs"]) == 1_100
    assert len(answer("jobs", "list", "--limit", "5000")["jobs"]) == 1_200


@pytest.mark.shows("R-QUEUE-09")
@pytest.mark.parametrize(
    "condition",
    [
        ("--queue", "mail"),
        ("--state", "scheduled"),
        ("--state", "delayed"),
        ("--task", "mail.send"),
        ("--tag", "red", "--tag", "blue"),
        ("--metadata", "tenant=7"),
        ("--metadata", "name=ada"),
        ("--priority-from", "5"),
        ("--priority-from", "5", "--priority-to", "9"),
        ("--unique-key", "u"),
        ("--idempotency-key", "o"),
        ("--correlation-id", "c"),
        ("--parent", "p"),
        ("--text", "needle"),
    ],
)
def test_conditions_narrow_a_list(condition: tuple[str, ...], store: Store) -> None:
    put(store, "hay", priority=1, tags=("red",), metadata={"tenant": "7", "name": "bob"})
    wanted = put(
        store,
        "needle",
        task="mail.send",
        queue=MAIL,
        delay_ms=60_000,
        priority=9,
        tags=("red", "blue"),
        metadata={"tenant": 7, "name": "ada"},
        unique_key="u",
        idempotency_key="o",
        correlation_id="c",
        parent_id="p",
    )

    assert ids(answer("jobs", "list", *condition)["jobs"]) == [wanted]


def test_times_are_instants_or_count_back_from_now(store: Store) -> None:
    job = put(store)

    assert ids(answer("jobs", "list", "--created-from", "1h")["jobs"]) == [job]
    assert answer("jobs", "list", "--created-before", "1h")["jobs"] == []
    assert ids(answer("jobs", "list", "--created-from", "2020-01-01T00:00:00+00:00")["jobs"]) == [job]
    assert answer("jobs", "list", "--finished-before", "2020-01-01T00:00:00Z")["jobs"] == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--state", "nope"), "'nope' is not a job state; the states are scheduled, blocked"),
        (("--created-from", "yesterday"), "'yesterday' is not a time; write 2030-01-31T12:00:00+00:00"),
        (("--created-from", "2020-01-01T00:00:00"), "'2020-01-01T00:00:00' has no time zone"),
        (("--created-from", "9999999d"), "'9999999d' is longer than a hundred years"),
        (("--created-from", "0001-01-01T00:00:00Z"), "is not a time between 1971 and 2099"),
        (("--metadata", "tenant"), "'tenant' is not KEY=VALUE"),
        (("--metadata", "a=1", "--metadata", "a=2"), "a is given twice"),
        (("--priority-from", "9" * 30), "cannot hold a value"),
        (("--task", "\udcff"), "no job can hold the text"),
        (("--limit", "0"), "0 is not in the range"),
        (("--after", "here"), "'here' is not the end of an earlier page"),
        (("--priority-from", "high"), "'high' is not a valid integer"),
    ],
)
def test_a_wrong_condition_is_bad_input(words: tuple[str, ...], complaint: str, store: Store) -> None:
    error = refusal("jobs", "list", *words)

    assert error["status"] == 2
    assert complaint in error["message"]


def test_jobs_are_found_by_a_text(store: Store) -> None:
    found = put(store, "find the needle here")
    put(store, "hay", queue=MAIL)

    assert ids(answer("jobs", "search", "needle")["jobs"]) == [found]
    assert answer("jobs", "search", "needle", "--queue", "mail")["jobs"] == []


def test_a_job_is_shown_with_its_whole_life(store: Store) -> None:
    job_id = put(store, "ada", 2, metadata={"tenant": 7}, unique_key="u")
    for message in ("first", "second"):
        job = steps.start(store)
        error = AttemptError(type="Boom", message=message, traceback=f"Traceback of {message}")
        store.settle_and_claim(steps.W1, [steps.ended(job, Failed(error, after_ms=0))])
    store.promote()

    shown = answer("jobs", "show", job_id)

    assert (shown["id"], shown["state"], shown["status"]) == (job_id, "pending", "pending")
    assert (shown["args"], shown["kwargs"], shown["metadata"]) == (["ada", 2], {}, {"tenant": 7})
    assert (shown["failures"], shown["policy"]["max_retries"]) == (2, 3)
    assert [attempt["error"]["traceback"] for attempt in shown["attempts"]] == [
        "Traceback of first",
        "Traceback of second",
    ]
    assert [line["what"] for line in shown["timeline"]] == [
        "enqueued",
        "attempt 1 started",
        "attempt 1 failed",
        "attempt 2 started",
        "attempt 2 failed",
    ]
    assert shown["position"] == {"ahead": 0, "is_exact": True}


def test_a_job_that_waits_for_its_turn_says_whose_it_is(store: Store) -> None:
    first, second = put(store, sequence="account:acme"), put(store, sequence="account:acme")

    shown = [answer("jobs", "show", job_id)["waits_for"] for job_id in (first, second)]

    assert shown == [None, first]
    assert re.search(rf"waits for +{first}", call("jobs", "show", second).output)


def test_people_read_the_same(store: Store) -> None:
    job = steps.started(store, task="mail.send")
    error = AttemptError(type="Boom", message="it \x1b[31mbroke", traceback="Traceback\n  line 1")
    store.settle_and_claim(steps.W1, [steps.ended(job, Failed(error))])

    shown = call("jobs", "show", job.id)

    assert shown.exit_code == 0
    assert "mail.send" in shown.stdout
    assert "attempt 1 failed   Boom: it �[31mbroke" in shown.stdout
    assert "Attempt 1:\nTraceback\n  line 1" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_the_end_and_the_result_are_part_of_its_life(store: Store) -> None:
    job = steps.started(store)
    store.settle_and_claim(steps.W1, [steps.ended(job, Completed(encode_result({"sent": 3})))])

    shown = answer("jobs", "show", job.id)

    assert shown["result"] == {"sent": 3}
    assert [line["what"] for line in shown["timeline"]] == ["enqueued", "attempt 1 started", "completed"]


def test_an_attempt_whose_worker_is_unknown_is_told_without_one(store: Store) -> None:
    job = steps.started(store)
    store.cancel([job.id], force=True)

    shown = call("jobs", "show", job.id).stdout

    assert "attempt 1 started" in shown
    assert "worker None" not in shown


def test_failures_are_told_with_the_retries_that_are_allowed(store: Store) -> None:
    job = steps.started(store, policy=RetryPolicy(max_retries=0))
    store.settle_and_claim(steps.W1, [steps.ended(job, Failed(steps.BOOM))])
    other = put(store, policy=RetryPolicy(max_retries=1))

    assert "0 (1 retry allowed)" in call("jobs", "show", other).stdout
    assert re.search(
        r"^failures +1 \(0 retries allowed\)$", call("jobs", "show", job.id).stdout, re.MULTILINE
    )


def test_people_see_arguments_and_results_as_json(store: Store) -> None:
    job_id = put(store, None, True, "ada", metadata={"tenant": None})
    job = steps.start(store)
    store.settle_and_claim(steps.W1, [steps.ended(job, Completed(encode_result({"sent": None})))])

    shown, ended = call("jobs", "show", job_id).stdout, call("jobs", "wait", job_id).stdout

    assert re.search(r'^args +\[null, true, "ada"\]$', shown, re.MULTILINE)
    assert re.search(r'^result +\{"sent": null\}$', shown, re.MULTILINE)
    assert re.search(r'^metadata +\{"tenant": null\}$', shown, re.MULTILINE)
    assert '{"sent": null}' in ended


def test_a_job_is_shown_with_the_number_of_its_runs(store: Store) -> None:
    job_id = put(store)
    store.settle_and_claim(steps.W1, [steps.ended(steps.start(store), Interrupted(started=False))])
    steps.start(store)

    shown = answer("jobs", "show", job_id)

    assert (shown["attempt"], shown["run_number"], "unstarted" in shown) == (2, 1, False)
    assert re.search(r"run number\W+1\b", call("jobs", "show", job_id).stdout)


def test_a_payload_that_cannot_be_read_is_shown_as_it_is(store: Store) -> None:
    job_id = steps.put(store, payload=b"{}")

    shown = answer("jobs", "show", job_id)

    assert (shown["args"], shown["payload_base64"]) == (None, "e30=")
    assert "does not begin with the header of a payload" in shown["payload_error"]
    assert "does not begin with the header of a payload" in call("jobs", "show", job_id).stdout


@pytest.mark.parametrize(
    "words",
    [("show", "x"), ("wait", "x"), ("cancel", "x", "--yes"), ("delete", "x", "--yes"), ("revive", "x")],
)
def test_a_job_that_is_not_there_has_a_status_of_its_own(words: tuple[str, ...], store: Store) -> None:
    error = refusal("jobs", *words)

    assert (error["kind"], error["status"]) == ("JobNotFound", 4)
    assert "there is no job x" in error["message"]


@pytest.mark.shows("R-CANCEL-01")
def test_a_job_that_waits_is_cancelled_with_a_reason(store: Store, reader: Reader) -> None:
    job_id = put(store)

    done = answer("jobs", "cancel", job_id, "--reason", "no longer wanted", "--yes")

    assert done == {
        "cancelled": 1,
        "cancel_requested": 0,
        "jobs": [{"id": job_id, "applied": True, "state": "cancelled", "reason": "", "is_busy": False}],
    }
    assert steps.look(reader, job_id).reason == "no longer wanted"


def test_who_cancelled_is_in_the_history(
    store: Store, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_ACTOR", "ada")
    job_id = put(store)

    call("jobs", "cancel", job_id, "--yes")

    [event] = steps.events_of(reader, job_id)
    assert (event.kind, event.actor) == (EventKind.CANCEL, "ada")


@pytest.mark.shows("R-CANCEL-06")
def test_a_final_job_is_not_cancelled(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)

    error = refusal("jobs", "cancel", job_id, "--yes")

    assert (error["kind"], error["status"]) == ("IllegalTransition", 5)
    assert steps.look(reader, job_id).state is JobState.DEAD


def test_by_force_a_running_job_is_taken_from_its_worker(store: Store, reader: Reader) -> None:
    job = steps.started(store)

    taken = answer("jobs", "cancel", job.id, "--force", "--yes")

    assert (taken["cancelled"], taken["cancel_requested"], taken["force_cancelled"]) == (0, 0, 1)
    assert taken["jobs"][0]["state"] == "dead"
    assert steps.look(reader, job.id).state is JobState.DEAD


def test_people_are_told_that_force_makes_a_dead_letter(store: Store) -> None:
    job = steps.started(store)

    output = call("jobs", "cancel", job.id, "--force", "--yes").stdout

    assert output == "1 job taken from the worker and moved to the dead letters\n"


@pytest.mark.parametrize("how", ["ids", "conditions"])
def test_what_was_cancelled_and_what_was_asked_to_stop_are_counted_apart(how: str, store: Store) -> None:
    running = steps.started(store)
    waiting = [put(store), put(store)]
    words = [*waiting, running.id] if how == "ids" else ["--all"]

    result = answer("jobs", "cancel", *words, "--yes")
    again = call("jobs", "cancel", running.id, "--yes")

    assert (result["cancelled"], result["cancel_requested"]) == (2, 1)
    assert "force_cancelled" not in result
    assert again.stdout == "1 job asked to stop\n"


def test_people_read_both_numbers(store: Store) -> None:
    steps.started(store)
    put(store)

    assert call("jobs", "cancel", "--all", "--yes").stdout == "1 job cancelled, 1 job asked to stop\n"
    assert call("jobs", "cancel", "--queue", "default", "--state", "pending", "--yes").stdout == (
        "0 jobs cancelled\n"
    )


def test_of_several_jobs_each_answers_for_itself(store: Store) -> None:
    waiting, final = put(store), make(store, JobState.COMPLETED, queue=MAIL)

    result = call("jobs", "cancel", waiting, final, waiting, "--yes", "--json")
    unknown = call("jobs", "delete", "absent", final, "--yes")

    results = json.loads(result.stdout)
    assert result.exit_code == 5
    assert results["cancelled"] == 1
    assert [(job["id"], job["applied"]) for job in results["jobs"]] == [(waiting, True), (final, False)]
    assert unknown.exit_code == 4
    assert "absent" in unknown.stdout
    assert "1 job deleted" in unknown.stdout


def test_people_are_told_why_nothing_was_done_to_an_unknown_job(store: Store) -> None:
    shown = call("jobs", "cancel", put(store), "absent", "--yes").stdout

    assert re.search(r"^absent +unknown +there is no such job$", shown, re.MULTILINE)


@pytest.mark.shows("R-QUEUE-08", "R-DLQ-13")
def test_jobs_are_cancelled_revived_and_deleted_by_conditions(store: Store, reader: Reader) -> None:
    steps.put_many(store, 3, queue=MAIL)
    other = put(store)

    assert answer("jobs", "cancel", "--queue", "mail", "--yes") == {"cancelled": 3, "cancel_requested": 0}
    assert answer("jobs", "revive", "--queue", "mail", "--yes") == {"revived": 3}
    assert answer("jobs", "delete", "--queue", "mail", "--yes") == {"deleted": 3}
    assert answer("jobs", "delete", "--queue", "mail", "--yes") == {"deleted": 0}
    assert steps.look(reader, other).state is JobState.PENDING


def test_a_revived_job_may_come_later_and_in_another_queue(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)
    store.save_queue(MAIL)

    done = answer("jobs", "revive", job_id, "--to", "mail", "--delay", "1h", "--keep-failures")

    job = steps.look(reader, job_id)
    assert done["jobs"][0]["state"] == "scheduled"
    assert (job.queue, job.state) == ("mail", JobState.SCHEDULED)


def test_all_jobs_must_be_meant(store: Store, reader: Reader) -> None:
    put(store)

    assert refusal("jobs", "delete", "--yes")["status"] == 2
    assert refusal("jobs", "delete", "x", "--all", "--yes")["status"] == 2
    assert refusal("jobs", "cancel", "--all", "--force", "--yes")["status"] == 2
    assert answer("jobs", "delete", "--all", "--yes") == {"deleted": 1}


@pytest.mark.parametrize(
    "words",
    [("cancel", "--all"), ("delete", "--all"), ("revive", "--all"), ("cancel", "ID"), ("delete", "ID")],
)
def test_without_a_terminal_and_without_yes_nothing_is_done(
    words: tuple[str, ...], store: Store, reader: Reader
) -> None:
    waiting, dead = put(store), make(store, JobState.CANCELLED, queue=MAIL)
    named = [waiting if word == "ID" else word for word in words]

    error = refusal("jobs", *named)

    assert error["status"] == 2
    assert "add --yes" in error["message"]
    assert " job" in error["message"]
    assert steps.states(reader, [waiting, dead]) == [JobState.PENDING, JobState.CANCELLED]


def test_the_question_counts_the_jobs_that_would_be_touched(store: Store) -> None:
    steps.put_many(store, 3, priority=5)
    steps.put_many(store, 2, priority=1)
    steps.started(store, queue=MAIL)

    assert "Delete 5 jobs in sqlite:///jobs.db?" in refusal("jobs", "delete", "--all")["message"]
    assert "Delete 3 jobs" in refusal("jobs", "delete", "--priority-from", "5")["message"]
    assert "Cancel 6 jobs" in refusal("jobs", "cancel", "--all")["message"]


def test_a_large_number_is_counted_up_to_ten_thousand(store: Store) -> None:
    for _ in range(11):
        steps.put_many(store, 1_000, priority=5)

    assert "Delete 11,000 jobs" in refusal("jobs", "delete", "--all")["message"]
    assert "more than 10,000 jobs" in refusal("jobs", "delete", "--priority-from", "5")["message"]


@pytest.mark.parametrize("option", ["--text", "--queue", "--task", "--tag", "--unique-key", "--parent"])
def test_an_empty_condition_is_not_taken_for_every_job(option: str, store: Store, reader: Reader) -> None:
    job_id = put(store)

    error = refusal("jobs", "delete", option, "", "--yes")

    assert error["status"] == 2
    assert "is empty; leave it out" in error["message"]
    assert steps.look(reader, job_id).state is JobState.PENDING
    assert refusal("jobs", "search", "")["status"] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "list", "--queue", "mial"),
        ("jobs", "list", "--queue", "mial", "--queue", "\udcff"),
        ("jobs", "search", "x", "--queue", "mial"),
        ("jobs", "cancel", "--queue", "mial", "--yes"),
        ("jobs", "delete", "--queue", "default", "--queue", "mial", "--yes"),
        ("jobs", "revive", "--queue", "mial", "--yes"),
        ("jobs", "revive", "--all", "--to", "mial", "--yes"),
        ("jobs", "revive", "DEAD", "--to", "mial"),
        ("dead", "list", "--queue", "mial"),
        ("dead", "purge", "--queue", "mial", "--yes"),
        ("dead", "revive", "DEAD", "--to", "mial"),
    ],
    ids=" ".join,
)
def test_a_mistyped_queue_is_not_taken_for_an_empty_one(
    words: tuple[str, ...], store: Store, reader: Reader
) -> None:
    dead = make(store, JobState.DEAD)

    error = refusal(*(dead if word == "DEAD" else word for word in words))

    assert (error["kind"], error["status"]) == ("QueueNotFound", 4)
    assert "there is no queue mial; `forebay queues list` lists the queues" in error["message"]
    assert steps.look(reader, dead).state is JobState.DEAD
    assert [queue.name for queue in reader.queues()] == ["default"]


def test_jobs_are_not_revived_into_a_queue_that_was_deleted(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)
    answer("queues", "create", "mail")
    answer("queues", "delete", "mail", "--yes")

    assert refusal("jobs", "revive", job_id, "--to", "mail")["status"] == 5
    assert steps.look(reader, job_id).state is JobState.DEAD


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("jobs", "cancel", "--state", "dead"), "No dead job can be cancelled"),
        (("jobs", "cancel", "--state", "pending", "--state", "dead"), "No dead job can be cancelled"),
        (("jobs", "revive", "--state", "pending"), "No pending job can be revived"),
        (("jobs", "delete", "--state", "running"), "No running job can be deleted"),
        (("queues", "purge", "default", "--state", "running"), "No running job can be deleted"),
    ],
)
def test_a_state_that_can_never_be_touched_is_bad_input(
    words: tuple[str, ...], complaint: str, store: Store
) -> None:
    put(store)

    error = refusal(*words, "--yes")

    assert error["status"] == 2
    assert complaint in error["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "cancel", "--older-than", "7d"),
        ("jobs", "cancel", "--queue", "default", "--finished-before", "7d"),
        ("queues", "purge", "default", "--older-than", "7d"),
        ("queues", "purge", "default", "--state", "pending", "--older-than", "7d"),
        ("jobs", "delete", "--state", "pending", "--older-than", "7d"),
    ],
    ids=" ".join,
)
def test_jobs_that_wait_have_not_ended_and_the_condition_for_them_is_named(
    words: tuple[str, ...], store: Store, reader: Reader
) -> None:
    job_id = put(store)

    error = refusal(*words, "--yes")

    assert error["status"] == 2
    assert "have not ended; use --created-before" in error["message"]
    assert steps.look(reader, job_id).state is JobState.PENDING


def test_jobs_that_have_ended_may_be_purged_by_their_age(store: Store) -> None:
    clock = ManualClock(now_ms=SystemClock().now_ms() - 10 * steps.DAY)
    past = open_engine("sqlite:///jobs.db", clock=clock).store()
    make(past, JobState.DEAD)
    make(past, JobState.COMPLETED)
    past.close()
    make(store, JobState.DEAD)

    purged = answer("queues", "purge", "default", "--state", "dead", "--older-than", "7d", "--yes")
    deleted = answer("jobs", "delete", "--older-than", "7d", "--yes")

    assert (purged["deleted"], deleted["deleted"]) == (1, 1)


def test_jobs_are_not_revived_into_a_queue_that_cannot_be(store: Store, reader: Reader) -> None:
    job_id = make(store, JobState.DEAD)

    assert refusal("jobs", "revive", job_id, "--to", "a:b")["status"] == 2
    assert steps.look(reader, job_id).state is JobState.DEAD


def test_people_are_told_how_a_list_goes_on(store: Store) -> None:
    put(store, task="first")
    put(store, task="second")

    page = call("jobs", "list", "--limit", "1").stdout

    assert "second" in page
    assert "There may be more: --after " in page
    assert call("jobs", "list", "--task", "none").stdout == "(none)\n"


@pytest.mark.shows("R-CANCEL-07")
def test_a_job_that_waits_can_be_changed(store: Store, reader: Reader) -> None:
    job_id = put(store, delay_ms=60_000)

    assert answer("jobs", "update", job_id, "--priority", "9", "--delay", "0")["state"] == "pending"
    assert steps.look(reader, job_id).priority == 9
    assert refusal("jobs", "update", job_id, "--to", "mail")["status"] == 4
    store.save_queue(MAIL)
    assert answer("jobs", "update", job_id, "--to", "mail")["state"] == "pending"
    assert steps.look(reader, job_id).queue == "mail"
    assert refusal("jobs", "update", job_id)["status"] == 2
    assert refusal("jobs", "update", job_id, "--priority", "101")["status"] == 2
    assert refusal("jobs", "update", job_id, "--delay", "5m")["status"] == 5


def test_waiting_gives_what_the_job_returned(store: Store) -> None:
    job = steps.started(store)
    end = steps.ended(job, Completed(encode_result([1, 2])))
    settling = Thread(target=lambda: store.settle_and_claim(steps.W1, [end]))
    settling.start()

    [ended] = answer("jobs", "wait", job.id, "--timeout", "100s")

    settling.join()
    assert (ended["state"], ended["result"]) == ("completed", [1, 2])


def test_waiting_for_a_job_that_died_is_a_bad_answer(store: Store) -> None:
    good, dead = make(store, JobState.COMPLETED, queue=MAIL), make(store, JobState.DEAD)

    result = call("jobs", "wait", good, dead)

    assert result.exit_code == 1
    assert "Boom: it broke" in result.stdout


def test_waiting_too_long_has_a_status_of_its_own(store: Store) -> None:
    job_id = put(store)

    error = refusal("jobs", "wait", job_id, "--timeout", "0")

    assert error["status"] == 6
    assert f"job {job_id} is pending" in error["message"]


def test_what_a_job_has_said_is_shown_with_it(store: Store) -> None:
    job_id = put(store)
    [job] = claim(store)
    lease = Lease(job_id, job.attempt)
    step = StepResult(name="pack", result=encode_result([1]), attempt=1)
    line = LogLine(at=1_000, level="INFO", text="nearly there", attempt=1)
    progress = Progress(done=1_500, total=3_000, message="half way", attempt=1)
    store.settle_and_claim(
        WORKER, updates=[ProgressUpdate(lease=lease, progress=progress, lines=(line,), steps=(step,))]
    )

    found = answer("jobs", "show", job_id)
    shown = call("jobs", "show", job_id).output

    assert (found["progress"]["done"], found["progress"]["at"][-1]) == (1_500, "Z")
    assert [(one["name"], one["result"], one["attempt"]) for one in found["steps"]] == [("pack", [1], 1)]
    assert [(one["text"], one["at"]) for one in found["log"]] == [
        ("nearly there", "1970-01-01T00:00:01.000Z")
    ]
    assert "1,500 of 3,000 half way (attempt 1, " in shown
    assert "pack" in shown
    assert "nearly there" in shown


def test_a_job_that_has_said_nothing_shows_nothing_of_it(store: Store) -> None:
    job_id = put(store)

    found = answer("jobs", "show", job_id)
    shown = call("jobs", "show", job_id).output

    assert (found["progress"], found["steps"], found["log"]) == (None, [], [])
    assert "Steps done" not in shown
    assert "progress" not in shown


def test_names_that_a_setting_masks_are_masked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_own_names", set())
    monkeypatch.setenv("FOREBAY_MASKED_NAMES", "iban")
    put(store)  # there has to be a store
    job_id = answer("enqueue", "t", "customer_iban=DE1", "city=Ulm")["id"]

    assert answer("jobs", "show", job_id)["kwargs"] == {"customer_iban": "***", "city": "Ulm"}
