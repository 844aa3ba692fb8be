"""Every option of a task and of a call arrives in the job, in milliseconds; wrong ones are named."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forebay import ConfigError, Forebay, ForebayError, InvalidJob, RetryPolicy
from forebay.app.job_options import CallOptions, TaskOptions
from forebay.app.task import Task
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import DEFAULT_TIMEOUT_MS, Dependency, JobId, NewJob, OnFailure, UniqueUntil
from forebay.domain.retry_policy import PRESETS
from forebay.testing.manual_clock import ManualClock

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOON_AT = 1_893_499_200_000


def nothing() -> None:
    pass


@pytest.fixture
def app(clock: ManualClock) -> Forebay:
    """Nothing is stored in most of these tests, so one engine is enough."""
    return Forebay("memory://", clock=clock)


def made(app: Forebay, **options: Any) -> NewJob:
    """The job of a task with these options."""
    return app.task(name="t", **options)(nothing).job()


def made_using(app: Forebay, **options: Any) -> NewJob:
    """The job of a call with these options."""
    return app.task(name="t")(nothing).using(**options).job()


OF_TASKS: list[Any] = [
    ({"queue": "mail"}, {"queue": "mail"}),
    ({"priority": -7}, {"priority": -7}),
    ({"timeout": 1.5}, {"timeout_ms": 1_500}),
    ({"timeout": timedelta(minutes=1)}, {"timeout_ms": 60_000}),
    ({"timeout": None}, {"timeout_ms": None}),
    ({"lease": 2}, {"lease_ms": 2_000}),
    ({"lease": timedelta(hours=1)}, {"lease_ms": 3_600_000}),
    ({"expires": NOON}, {"expires_at": NOON_AT}),
    ({"tags": ["a", "b"]}, {"tags": ("a", "b")}),
    ({"metadata": {"tenant": 7, "deep": [{}]}}, {"metadata": {"tenant": 7, "deep": [{}]}}),
    ({"limit_keys": {"tenant": "a"}}, {"limit_keys": {"tenant": "a"}}),
    ({"limit_by": {"tenant": lambda: "b"}}, {"limit_keys": {"tenant": "b"}}),
    ({"fairness_key": "acme", "limit_keys": {"host": "h"}}, {"limit_keys": {"host": "h", FAIRNESS: "acme"}}),
    ({"fairness_by": lambda: "acme"}, {"limit_keys": {FAIRNESS: "acme"}}),
    ({"sequence": "s"}, {"sequence": "s"}),
    ({"cost": 3}, {"cost": 3}),
    ({"sequence_by": lambda: "s"}, {"sequence": "s"}),
    ({"sequence": None, "sequence_by": lambda: "s"}, {"sequence": None}),
    ({"client": "web"}, {"client": "web"}),
    ({"retries": 0}, {"policy": RetryPolicy(max_retries=0)}),
    ({"max_crashes": 0}, {"policy": RetryPolicy(max_crashes=0)}),
    ({"retry_policy": "base_1m"}, {"policy": PRESETS["base_1m"]}),
    ({"retry_policy": RetryPolicy(base_ms=7)}, {"policy": RetryPolicy(base_ms=7)}),
    (
        {"retry_policy": RetryPolicy(base_ms=7), "retries": 9, "max_crashes": 1},
        {"policy": RetryPolicy(base_ms=7, max_retries=9, max_crashes=1)},
    ),
]
OF_CALLS: list[Any] = [
    ({"id": "order-1"}, {"id": "order-1"}),
    ({"delay": 0.5}, {"delay_ms": 500}),
    ({"delay": timedelta(days=1)}, {"delay_ms": 86_400_000}),
    ({"run_at": NOON}, {"run_at": NOON_AT}),
    ({"deadline": NOON}, {"deadline_at": NOON_AT}),
    ({"unique_key": "daily"}, {"unique_key": "daily", "unique_until": UniqueUntil.FINAL}),
    (
        {"unique_key": "daily", "unique_until": "started"},
        {"unique_key": "daily", "unique_until": UniqueUntil.STARTED},
    ),
    ({"idempotency_key": "pay-1"}, {"idempotency_key": "pay-1", "idempotency_ttl_ms": 86_400_000}),
    (
        {"idempotency_key": "pay-1", "idempotency_ttl": 60},
        {"idempotency_key": "pay-1", "idempotency_ttl_ms": 60_000},
    ),
    ({"correlation_id": "req-1"}, {"correlation_id": "req-1"}),
    (
        {"depends_on": ["a"], "on_failure": "hold", "allow_missing": True},
        {"depends_on": (Dependency(JobId("a"), OnFailure.HOLD),), "allow_missing": True},
    ),
]


def fields_of(job: NewJob, names: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(job, name) for name in names}


@pytest.mark.shows("R-RETRY-19")
@pytest.mark.shows("R-JOB-11", "R-JOB-12", "R-JOB-13", "R-JOB-14", "R-JOB-19", "R-JOB-20", "R-RETRY-03")
@pytest.mark.parametrize(("options", "fields"), OF_TASKS)
def test_an_option_of_a_task_arrives_in_its_jobs(
    app: Forebay, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert fields_of(made(app, **options), fields) == fields


@pytest.mark.shows("R-JOB-05", "R-JOB-15", "R-JOB-21", "R-JOB-22", "R-RETRY-03")
@pytest.mark.parametrize(("options", "fields"), OF_TASKS + OF_CALLS)
def test_an_option_of_a_call_arrives_in_its_job(
    app: Forebay, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert fields_of(made_using(app, **options), fields) == fields


def test_every_option_is_tried_above() -> None:
    tried_on_tasks = {name for options, _ in OF_TASKS for name in options}
    tried_on_calls = {name for options, _ in OF_CALLS for name in options}

    assert tried_on_tasks == set(TaskOptions.__annotations__)
    assert tried_on_calls == set(CallOptions.__annotations__) - tried_on_tasks - {"on_conflict"}


def test_without_options_a_job_has_the_defaults(app: Forebay) -> None:
    job = made(app)

    assert job == NewJob(task="t", payload=job.payload)
    assert job.timeout_ms == DEFAULT_TIMEOUT_MS


# ------------------------------------------------------------------ times that count from the call


@pytest.mark.parametrize(("option", "field"), [("expires", "expires_at"), ("deadline", "deadline_at")])
@pytest.mark.parametrize("length", [90, timedelta(seconds=90)])
def test_a_length_counts_from_the_call_and_not_from_using(
    app: Forebay, clock: ManualClock, option: Any, field: str, length: Any
) -> None:
    call = app.task(nothing).using(**{option: length})

    clock.advance(seconds=10)
    first = call.job()
    clock.advance(seconds=10)
    second = call.job()

    start = 1_800_000_000_000
    assert getattr(first, field) == start + 10_000 + 90_000
    assert getattr(second, field) == start + 20_000 + 90_000


def test_expiry_of_the_task_and_deadline_of_the_call_may_count_from_the_call(
    app: Forebay, clock: ManualClock
) -> None:
    job = app.task(expires=5)(nothing).using(deadline=3).job()

    assert (job.expires_at, job.deadline_at) == (clock.now_ms() + 5_000, clock.now_ms() + 3_000)


def test_a_call_takes_back_the_expiry_of_its_task(app: Forebay) -> None:
    assert app.task(expires=5)(nothing).using(expires=None).job().expires_at is None


# ------------------------------------------------------------------ which option wins


def test_what_a_call_says_replaces_what_its_task_says_and_nothing_else(app: Forebay) -> None:
    task = app.task(queue="mail", priority=1, tags=["a"], timeout=5)(nothing)

    job = task.using(priority=9, tags=["b"]).using(priority=8).job()

    assert (job.queue, job.priority, job.tags, job.timeout_ms) == ("mail", 8, ("b",), 5_000)


def test_using_leaves_the_task_and_the_call_before_as_they_were(app: Forebay) -> None:
    task = app.task(priority=1)(nothing)
    call = task.using(priority=2)

    call.using(priority=3)

    assert (task.job().priority, call.job().priority) == (1, 2)


def test_later_changes_of_the_callers_own_collections_do_not_reach_the_job(app: Forebay) -> None:
    tags, metadata = ["a"], {"k": 1}
    task = app.task(tags=tags, metadata=metadata)(nothing)

    tags.append("b")
    metadata["k"] = 2

    assert (task.job().tags, task.job().metadata) == (("a",), {"k": 1})


# ------------------------------------------------------------------ wrong options and wrong values


def test_an_unknown_option_is_named_with_the_list(app: Forebay) -> None:
    wrong: Any = {"retry_count": 3}

    with pytest.raises(ConfigError, match=r"no option 'retry_count'; the options are .*priority.*retries"):
        app.task(**wrong)
    with pytest.raises(ConfigError, match=r"no option 'retry_count'; the options are .*run_at.*unique"):
        app.task(nothing).using(**wrong)


@pytest.mark.parametrize(("wrong", "right"), [("dealy", "delay"), ("retires", "retries"), ("que", "queue")])
def test_a_mistyped_option_of_a_call_is_guessed(app: Forebay, wrong: str, right: str) -> None:
    options: Any = {wrong: 1}

    with pytest.raises(ConfigError, match=f"no option '{wrong}'; did you mean {right}\\? The options are "):
        app.task(nothing).using(**options)


@pytest.mark.parametrize(("wrong", "right"), [("isolate", "isolated"), ("alias", "aliases")])
def test_a_mistyped_option_of_a_task_is_guessed_and_all_are_listed(
    app: Forebay, wrong: str, right: str
) -> None:
    options: Any = {wrong: 1}

    with pytest.raises(ConfigError, match=f"did you mean {right}\\?") as refusal:
        app.task(**options)

    [_, listed] = str(refusal.value).split("The options are ")
    taken = [name for name in inspect.signature(app.task).parameters if name not in ("func", "options")]
    assert set(listed.split(", ")) == {*taken, *TaskOptions.__annotations__}


@pytest.mark.parametrize("name", ["id", "delay", "run_at", "unique_key", "idempotency_key", "correlation_id"])
def test_what_belongs_to_one_call_is_no_option_of_a_task(app: Forebay, name: str) -> None:
    wrong: Any = {name: "x"}

    with pytest.raises(ConfigError, match=rf"there is no option '{name}' of a task; .* task\.using\({name}="):
        app.task(**wrong)


WRONG: list[Any] = [
    ({"queue": "my queue"}, "queue"),
    ({"queue": ""}, "queue"),
    ({"queue": "q" * 51}, "queue"),
    ({"priority": 101}, "priority"),
    ({"priority": 1.5}, "priority"),
    ({"priority": True}, "priority"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": -1}, "timeout"),
    ({"timeout": 86_401}, "timeout"),
    ({"timeout": "30"}, "timeout"),
    ({"lease": 0.5}, "lease"),
    ({"lease": None}, "lease"),
    ({"expires": datetime(2030, 1, 1)}, "expires"),  # noqa: DTZ001 - that is the point
    ({"expires": "tomorrow"}, "expires"),
    ({"expires": -1}, "expires"),
    ({"tags": "urgent"}, "tags"),
    ({"tags": 5}, "tags"),
    ({"tags": [5]}, "tags"),
    ({"tags": ["t"] * 21}, "tags"),
    ({"client": ""}, "client"),
    ({"client": 7}, "client"),
    ({"limit_keys": ["a"]}, "limit_keys"),
    ({"limit_keys": {"tenant": ""}}, "limit_keys"),
    ({"limit_keys": {"a b": "c"}}, "limit_keys"),
    ({"limit_keys": {f"k{n}": "v" for n in range(6)}}, "limit_keys"),
    ({"limit_by": ["a"]}, "limit_by"),
    ({"limit_by": {"a b": "c"}}, "limit_by"),
    ({"limit_by": {"a": 7}}, "limit_by"),
    ({"fairness_key": 7}, "fairness_key"),
    ({"fairness_key": ""}, "fairness_key"),
    ({"fairness_by": 7}, "fairness_by"),
    ({"sequence": ""}, "sequence"),
    ({"cost": -1}, "cost"),
    ({"sequence_by": 7}, "sequence_by"),
    ({"metadata": [1]}, "metadata"),
    ({"metadata": {"k": object()}}, "metadata"),
    ({"metadata": {"k": b"x"}}, "metadata"),
    ({"retries": -1}, "retries"),
    ({"retries": 101}, "retries"),
    ({"retries": "3"}, "retries"),
    ({"max_crashes": -1}, "max_crashes"),
    ({"retry_policy": "fast"}, "retry"),
    ({"retry_policy": 3}, "retry_policy"),
    ({"id": ""}, "id"),
    ({"id": "a\nb"}, "id"),
    ({"delay": -1}, "delay"),
    ({"delay": "1h"}, "delay"),
    ({"delay": NOON}, "delay"),
    ({"run_at": datetime(2030, 1, 1)}, "run_at"),  # noqa: DTZ001 - that is the point
    ({"run_at": 5}, "run_at"),
    ({"run_at": datetime(1969, 1, 1, tzinfo=UTC)}, "run_at"),
    ({"run_at": datetime(2101, 1, 1, tzinfo=UTC)}, "run_at"),
    ({"delay": 5, "run_at": NOON}, "run_at"),
    ({"deadline": "soon"}, "deadline"),
    ({"deadline": -5}, "deadline"),
    ({"deadline": 1e12}, "deadline"),
    ({"deadline": 3e9}, "deadline"),
    ({"unique_key": ""}, "unique_key"),
    ({"unique_key": "k" * 201}, "unique_key"),
    ({"unique_key": 5}, "unique_key"),
    ({"unique_until": "done"}, "unique_until"),
    ({"idempotency_key": "\x00"}, "idempotency_key"),
    ({"idempotency_ttl": 0}, "idempotency_ttl"),
    ({"correlation_id": 5}, "correlation_id"),
    ({"on_conflict": "replace"}, "on_conflict"),
]


@pytest.mark.shows("R-ENQ-21", "R-ENQ-24", "R-ENQ-26", "R-ENQ-28", "R-ENQ-31", "R-ENQ-39")
@pytest.mark.parametrize(("options", "name"), WRONG)
def test_a_wrong_value_is_named_before_anything_is_stored(
    app: Forebay, options: dict[str, Any], name: str
) -> None:
    task: Task[[], None] = app.task(nothing)

    with pytest.raises((InvalidJob, ConfigError), match=name) as caught:
        task.using(**options).enqueue()

    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ForebayError)
    assert app.client.counts() == {}


OURS = {
    "timeout_ms", "lease_ms", "delay_ms", "idempotency_ttl_ms", "deadline_at", "expires_at", "max_retries",
}  # fmt: skip


@pytest.mark.shows("R-ENQ-31")
@pytest.mark.parametrize(("options", "name"), WRONG)
def test_an_error_speaks_in_the_callers_own_words(app: Forebay, options: dict[str, Any], name: str) -> None:
    with pytest.raises((InvalidJob, ConfigError)) as caught:
        app.task(nothing).using(**options).enqueue()

    assert [word for word in OURS if word in str(caught.value)] == []
    if isinstance(caught.value, InvalidJob):
        assert caught.value.field in CallOptions.__annotations__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout must be from 0.001 to 86,400 seconds, not 0"),
        (
            {"lease": timedelta(days=2)},
            "lease must be from 1 to 86,400 seconds, not datetime.timedelta(days=2)",
        ),
        ({"retries": 101}, "retries must be a whole number from 0 to 100, not 101"),
        ({"delay": 5, "run_at": NOON}, "give delay or run_at, not both"),
        ({"run_at": datetime(2101, 1, 1, tzinfo=UTC)}, "run_at must lie between the years 1970 and 2100"),
        ({"deadline": 3e9}, "deadline must lie between the years 1970 and 2100"),
        ({"expires": 3e9}, "expires must lie between the years 1970 and 2100"),
        ({"idempotency_key": "a\nb"}, "idempotency_key must not contain control characters: 'a\\nb'"),
    ],
)
def test_an_error_says_what_would_be_right(app: Forebay, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        app.task(nothing).using(**options).job()

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "name"), [pair for pair in WRONG if set(pair[0]) <= set(TaskOptions.__annotations__)]
)
def test_a_wrong_value_of_a_task_is_named_when_the_task_is_made(
    app: Forebay, options: dict[str, Any], name: str
) -> None:
    with pytest.raises((InvalidJob, ConfigError), match=name):
        app.task(name="t", **options)(nothing)

    assert "t" not in app.registry


def test_the_error_of_a_preset_names_those_that_there_are(app: Forebay) -> None:
    with pytest.raises(ConfigError, match=r"no retry preset 'fast'; there are base_1m, .*jitter_both_ways"):
        app.task(retry_policy="fast")(nothing)
