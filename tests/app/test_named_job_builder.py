"""Jobs by the name of their task, and jobs that are made beforehand."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from forebay import ConfigError, DuplicateJob, Forebay, InvalidJob, PayloadError
from forebay.app.consumer import arguments
from forebay.domain.job import NewJob
from forebay.domain.job_states import JobState
from forebay.payload.codec import decode_call, encode_call
from forebay.testing.manual_clock import ManualClock


def send(to: str, *, subject: str = "Hi") -> str:
    return f"{subject} to {to}"


# ------------------------------------------------------------------ tasks of other programs


@pytest.mark.shows("R-ENQ-02")
def test_a_task_that_this_program_does_not_know_is_asked_for_by_its_name(app: Forebay) -> None:
    handle = app.enqueue(
        "mail.send",
        ["ada"],
        {"subject": "Hello"},
        queue="mail",
        priority=9,
        retries=5,
        timeout=30,
        metadata={"tenant": 7},
    )

    job = handle.refresh()
    assert (job.id, job.task, job.queue, job.priority) == (handle.id, "mail.send", "mail", 9)
    assert (job.policy.max_retries, job.timeout_ms, job.metadata) == (5, 30_000, {"tenant": 7})
    assert arguments(job) == (("ada",), {"subject": "Hello"})


@pytest.mark.shows("R-ENQ-02")
def test_another_program_runs_what_was_asked_for_by_name(live_app: Forebay) -> None:
    handle = live_app.enqueue("mail.send", ["ada"], {"subject": "Hello"})
    live_app.task(name="mail.send")(send)

    with live_app.run_worker(threads=1):
        assert handle.result(timeout=120) == "Hello to ada"


def test_arguments_may_be_left_out(app: Forebay) -> None:
    assert arguments(app.enqueue("tick").refresh()) == ((), {})


def test_a_task_that_is_known_brings_its_options_and_the_call_wins(app: Forebay) -> None:
    app.task(name="send", queue="mail", priority=3)(send)

    job = app.enqueue("send", ["ada"], priority=4).refresh()

    assert (job.queue, job.priority) == ("mail", 4)


def test_arguments_that_do_not_fit_a_task_that_is_known_are_refused(app: Forebay) -> None:
    app.task(name="send")(send)

    with pytest.raises(PayloadError, match=r"task send cannot be called like this: .*'colour'"):
        app.enqueue("send", ["ada"], {"colour": "red"})

    assert app.counts() == {}


@pytest.mark.shows("R-ENQ-24")
@pytest.mark.parametrize(
    ("task", "args", "kwargs", "field"),
    [
        ("", [], {}, "task"),
        ("t" * 101, [], {}, "task"),
        (send, [], {}, "task"),
        (None, [], {}, "task"),
        ("t", "ada", {}, "args"),
        ("t", 5, {}, "args"),
        ("t", {"to": "ada"}, {}, "args"),
        ("t", [], [("to", "ada")], "kwargs"),
        ("t", [], {1: "ada"}, "kwargs"),
        ("t", [object()], {}, "args[0]"),
    ],
)
def test_a_request_that_makes_no_sense_is_named_before_anything_is_stored(
    app: Forebay, task: Any, args: Any, kwargs: Any, field: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        app.enqueue(task, args, kwargs)

    assert caught.value.field == field
    assert app.counts() == {}


def test_an_unknown_option_is_named(app: Forebay) -> None:
    wrong: Any = {"colour": "red"}

    with pytest.raises(ConfigError, match="there is no option 'colour'"):
        app.enqueue("t", **wrong)


def test_a_taken_key_is_an_answer_or_an_error_as_asked(app: Forebay) -> None:
    first = app.enqueue("t", unique_key="daily")

    assert app.enqueue("t", unique_key="daily") == first
    with pytest.raises(DuplicateJob):
        app.enqueue("t", unique_key="daily", on_conflict="raise")


def test_times_count_from_the_call(app: Forebay, clock: ManualClock) -> None:
    job = app.enqueue("t", expires=60, deadline=30).refresh()

    assert (job.expires_at, job.deadline_at) == (clock.now_ms() + 60_000, clock.now_ms() + 30_000)


@pytest.mark.shows("R-JOB-09")
def test_one_json_object_may_be_all_that_a_job_carries(app: Forebay) -> None:
    order = {"id": 7, "lines": [{"sku": "tea", "count": 2}], "~": None, "paid": True, "": {"deep": [[]]}}

    handle = app.enqueue("orders.handle", [order])

    with closing(app.consumer()) as consumer:
        [job] = consumer.claim()
    assert (job.id, arguments(job)) == (handle.id, ((order,), {}))


@pytest.mark.shows("R-JOB-09")
def test_the_one_object_of_a_job_reaches_its_task(live_app: Forebay) -> None:
    @live_app.task(name="orders.handle")
    def total(order: dict[str, Any]) -> int:
        return sum(line["count"] for line in order["lines"])

    order = {"lines": [{"count": 2}, {"count": 5}], **{f"more {n}": n for n in range(100)}}
    with live_app.run_worker(threads=1):
        assert live_app.enqueue("orders.handle", [order]).result(timeout=120) == 7
        assert total.enqueue(order).result(timeout=120) == 7


# ------------------------------------------------------------------ jobs that are made


@pytest.mark.shows("R-ENQ-03")
def test_a_job_that_is_made_is_stored_as_it_is(app: Forebay) -> None:
    made = NewJob(task="send", payload=encode_call(("ada",), {}), id="own", priority=7, tags=("a",))  # type: ignore[arg-type]

    handle = app.enqueue(made)

    job = handle.refresh()
    assert handle.id == "own"
    assert (job.task, job.priority, job.tags, decode_call(job.payload)) == ("send", 7, ("a",), (("ada",), {}))


@pytest.mark.shows("R-ENQ-03")
def test_a_job_made_by_its_task_is_stored(app: Forebay) -> None:
    task = app.task(name="send")(send)

    assert app.enqueue(task.using(delay=60).job("ada")).refresh().state is JobState.SCHEDULED


def test_a_made_job_may_meet_a_taken_key(app: Forebay) -> None:
    job = app.task(name="send")(send).using(unique_key="daily").job("ada")
    app.enqueue(job)

    assert app.enqueue(job).is_new is False
    with pytest.raises(DuplicateJob):
        app.enqueue(job, on_conflict="raise")


@pytest.mark.parametrize(
    ("args", "kwargs", "options"),
    [(["ada"], None, {}), ([], {"to": "ada"}, {}), ([], None, {"priority": 3})],
)
def test_nothing_is_added_to_a_job_that_is_made(app: Forebay, args: Any, kwargs: Any, options: Any) -> None:
    job = app.task(name="send")(send).job("ada")

    with pytest.raises(ConfigError, match="has its own arguments and options"):
        app.enqueue(job, args, kwargs, **options)


# ------------------------------------------------------------------ the shortest ways


@pytest.mark.shows("R-ENQ-20")
def test_a_function_is_registered_enqueued_and_scheduled_by_one_line_each(app: Forebay) -> None:
    @app.task(name="greet")
    def greet(name: str) -> str:
        return name

    now = greet.enqueue("ada")
    by_name = app.enqueue(greet.name, ["ada"])
    later = greet.using(delay=60).enqueue("ada")
    at = app.enqueue(greet.name, ["ada"], run_at=datetime(2099, 1, 1, tzinfo=UTC))

    states = [handle.refresh().state for handle in (now, by_name, later, at)]
    assert states == [JobState.PENDING] * 2 + [JobState.SCHEDULED] * 2
