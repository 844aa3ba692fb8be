"""What may be asked for, and what a stored job says about itself."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.job import ALERT_QUEUE, ALERT_TASK, DAY_MS, LATEST_AT, Job, JobId, NewJob, QueueName
from forebay.domain.job_states import JobState, Status
from forebay.domain.job_update import JobUpdate
from forebay.domain.job_validation import (
    MAX_ENCRYPTION_OVERHEAD,
    MAX_METADATA,
    MAX_PAYLOAD,
    check_queue_name,
)
from forebay.domain.job_views import JobSummary
from forebay.errors import InvalidJob, PayloadError
from tests.domain.sample_jobs import NOW, a_job

YEAR = 366 * DAY_MS
TEXTS = ["id", "unique_key", "idempotency_key", "correlation_id", "parent_id"]

# The field, the least and the greatest value it takes.
RANGES: list[tuple[str, int, int]] = [
    ("priority", -100, 100),
    ("delay_ms", 0, LATEST_AT),
    ("run_at", 0, LATEST_AT),
    ("deadline_at", 0, LATEST_AT),
    ("expires_at", 0, LATEST_AT),
    ("timeout_ms", 1, 86_400_000),
    ("lease_ms", 1_000, DAY_MS),
    ("extension_ms", 1_000, YEAR),
    ("idempotency_ttl_ms", 1, YEAR),
]
ENDS = [(field, value) for field, *ends in RANGES for value in ends]
BEYOND = [(field, value) for field, least, most in RANGES for value in (least - 1, most + 1)]
NOT_WHOLE: list[Any] = [1.0, 1_500.5, "5", True, float("nan")]
BAD_LINES = ["\n", "a\nb", "\x00", "tab\t", "\x1b[31m", "del\x7f", "half \ud800", "half \udfff"]


def new_job(**fields: Any) -> NewJob:
    return NewJob(**{"task": "send"} | fields)


def refused_field(**fields: Any) -> str | None:
    with pytest.raises(InvalidJob) as caught:
        new_job(**fields)
    return caught.value.field


# ------------------------------------------------------------------ requests


@pytest.mark.shows("R-JOB-11")
def test_a_task_name_is_enough() -> None:
    job = NewJob(task="send")

    assert (job.queue, job.payload, job.priority, job.delay_ms, job.run_at) == ("default", b"", None, 0, None)
    assert (job.timeout_ms, job.lease_ms, job.id, job.metadata, job.tags) == (1_800_000, None, None, {}, ())


@pytest.mark.shows("R-ENQ-26", "R-JOB-19", "R-JOB-20", "R-JOB-21", "R-PRI-04")
@pytest.mark.parametrize(("field", "value"), ENDS)
def test_a_number_at_its_limit_passes(field: str, value: int) -> None:
    assert getattr(new_job(**{field: value}), field) == value


@pytest.mark.shows("R-ENQ-26", "R-ENQ-28", "R-ENQ-31", "R-PRI-04")
@pytest.mark.parametrize(("field", "value"), BEYOND)
def test_a_number_beyond_its_limit_is_refused_by_name(field: str, value: int) -> None:
    assert refused_field(**{field: value}) == field


@pytest.mark.parametrize("value", NOT_WHOLE)
@pytest.mark.parametrize("field", [field for field, *_ in RANGES])
def test_what_is_not_a_whole_number_is_refused_by_name(field: str, value: Any) -> None:
    assert refused_field(**{field: value}) == field


@pytest.mark.parametrize("field", ["delay_ms", "extension_ms", "idempotency_ttl_ms"])
@pytest.mark.parametrize("value", [None, 0.0, False])
def test_a_number_that_must_be_there_is_not_guessed(field: str, value: Any) -> None:
    assert refused_field(**{field: value}) == field


def test_no_limit_of_time_can_be_asked_for() -> None:
    assert new_job(timeout_ms=None).timeout_ms is None


def test_a_delay_and_a_time_together_are_refused() -> None:
    assert refused_field(delay_ms=1, run_at=NOW) == "run_at"


@pytest.mark.shows("R-ENQ-28")
def test_a_refusal_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="priority must be a whole number from -100 to 100, not 101"):
        new_job(priority=101)


@pytest.mark.shows("R-ENQ-22", "R-EDGE-19")
def test_a_payload_exactly_at_the_limit_passes() -> None:
    assert len(new_job(payload=b"x" * MAX_PAYLOAD).payload) == 1_048_576


@pytest.mark.shows("R-ENQ-22", "R-ENQ-23", "R-EDGE-19", "R-SEC-10")
def test_a_payload_of_one_byte_more_is_refused() -> None:
    with pytest.raises(PayloadError, match="1,048,577 bytes, the limit is 1,048,576") as caught:
        new_job(payload=b"x" * (MAX_PAYLOAD + 1))

    assert caught.value.field == "payload"


def test_what_encryption_adds_is_not_counted() -> None:
    encrypted = b"fb1 0123abcd key=2026.88ff3ab2\n".ljust(MAX_PAYLOAD + MAX_ENCRYPTION_OVERHEAD, b"x")

    assert new_job(payload=encrypted).payload == encrypted
    with pytest.raises(PayloadError, match="the limit is 1,048,576"):
        new_job(payload=encrypted + b"x")


def test_a_request_with_another_payload_is_otherwise_the_same() -> None:
    job = new_job(payload=b"1", priority=7, tags=("red",))

    other = job.with_payload(b"2")

    assert other == new_job(payload=b"2", priority=7, tags=("red",))
    assert job.payload == b"1"


@pytest.mark.parametrize("payload", [b"x" * (MAX_PAYLOAD + 1), "text"])
def test_another_payload_is_checked_too(payload: Any) -> None:
    with pytest.raises(PayloadError):
        new_job().with_payload(payload)


@pytest.mark.parametrize("payload", ["text", bytearray(b"x"), memoryview(b"x"), None, {"a": 1}])
def test_a_payload_must_be_bytes(payload: Any) -> None:
    assert refused_field(payload=payload) == "payload"


# ------------------------------------------------------------------ names


@pytest.mark.shows("R-QUEUE-02")
@pytest.mark.parametrize("name", ["q", "mail", "test-queue", "a.b_c-D9", "9", "x" * 50])
def test_a_queue_can_be_called(name: str) -> None:
    assert new_job(queue=QueueName(name)).queue == name


@pytest.mark.shows("R-QUEUE-02")
@pytest.mark.parametrize(
    "name", ["", "x" * 51, "a:b", "a b", "a/b", "a\n", "ä", "\ud800", "q\x00", 5, None, True, b"q"]
)
def test_a_queue_cannot_be_called(name: Any) -> None:
    assert refused_field(queue=name) == "queue"


def test_the_queue_of_deliveries_is_for_deliveries_alone() -> None:
    assert new_job(queue=ALERT_QUEUE, task=ALERT_TASK).queue == ALERT_QUEUE
    with pytest.raises(InvalidJob, match="the queue forebay-alerts is for deliveries of alerts") as caught:
        new_job(queue=ALERT_QUEUE)
    assert caught.value.field == "queue"


def test_the_error_shows_the_name() -> None:
    with pytest.raises(InvalidJob, match="'a:b' cannot name a queue: use 1 to 50 letters"):
        check_queue_name("a:b")


@pytest.mark.shows("R-JOB-07")
@pytest.mark.parametrize("name", ["f", "app.mail:send", "senden für Ada", "x" * 100])
def test_a_task_can_be_called(name: str) -> None:
    assert new_job(task=name).task == name


@pytest.mark.shows("R-JOB-07")
@pytest.mark.parametrize("name", ["", "x" * 101, 5, None, b"f", *BAD_LINES])
def test_a_task_cannot_be_called(name: Any) -> None:
    assert refused_field(task=name) == "task"


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("text", ["k", "user:5/mail", "ключ", "x" * 200])
def test_a_key_may_be_any_short_line(field: str, text: str) -> None:
    assert getattr(new_job(**{field: text}), field) == text


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("text", ["", "x" * 201, 5, b"k", *BAD_LINES])
def test_a_key_cannot_be(field: str, text: Any) -> None:
    assert refused_field(**{field: text}) == field


@pytest.mark.parametrize("tags", [(), ("a",), ("x" * 50,), tuple(f"t{n}" for n in range(20))])
def test_a_job_has_up_to_twenty_tags(tags: tuple[str, ...]) -> None:
    assert new_job(tags=tags).tags == tags


@pytest.mark.parametrize(
    "tags", [("",), ("x" * 51,), ("a", "b\n"), (5,), ("half \ud800",), tuple(f"t{n}" for n in range(21))]
)
def test_other_tags_are_refused(tags: Any) -> None:
    assert refused_field(tags=tags) == "tags"


# ------------------------------------------------------------------ metadata


def of_size(size: int) -> dict[str, Any]:
    return {"k": "x" * (size - len('{"k":""}'))}


def nested(depth: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(depth):
        metadata = {"in": metadata}
    return metadata


@pytest.mark.shows("R-JOB-13")
@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"tenant": "a", "deep": {"list": [1, 2.5, None, True, "ü\n"]}},
        of_size(MAX_METADATA),
        nested(99),
    ],
)
def test_metadata_is_plain_json(metadata: dict[str, Any]) -> None:
    assert new_job(metadata=metadata).metadata == metadata


@pytest.mark.shows("R-ENQ-31")
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(of_size(MAX_METADATA + 1), id="too large"),
        pytest.param({"f": lambda: None}, id="a function"),
        pytest.param({"o": object()}, id="an object"),
        pytest.param({"t": "half \ud800"}, id="half a character"),
        pytest.param({"n": float("nan")}, id="not a number"),
        pytest.param({"n": float("inf")}, id="infinite"),
        pytest.param({"b": b"bytes"}, id="bytes"),
        pytest.param({"s": {1, 2}}, id="a set"),
        pytest.param({"t": (1, 2)}, id="a tuple"),
        pytest.param({1: "key"}, id="a number as key"),
        pytest.param(["a", "list"], id="a list"),
        pytest.param("text", id="a text"),
        pytest.param(nested(100), id="deeper than 100 levels"),
        pytest.param(nested(1_200), id="as deep as Python 3.12 can read and 3.11 cannot"),
        pytest.param(nested(100_000), id="too deep"),
    ],
)
def test_other_metadata_is_refused(metadata: Any) -> None:
    assert refused_field(metadata=metadata) == "metadata"


# ------------------------------------------------------------------ updates


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"priority": -100},
        {"priority": 100},
        {"delay_ms": 0},
        {"delay_ms": LATEST_AT},
        {"metadata": {"gone": None}},
        {"queue": QueueName("mail")},
    ],
)
def test_an_update_within_the_limits_passes(change: dict[str, Any]) -> None:
    assert {name: getattr(JobUpdate(**change), name) for name in change} == change


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", -101),
        ("priority", 101),
        ("priority", 1.0),
        ("delay_ms", -1),
        ("delay_ms", LATEST_AT + 1),
        ("metadata", {"o": object()}),
        ("queue", "no name!"),
        ("queue", ALERT_QUEUE),
    ],
)
def test_an_update_beyond_the_limits_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidJob) as caught:
        JobUpdate(**{field: value})

    assert caught.value.field == field


# ------------------------------------------------------------------ stored jobs


@pytest.mark.shows("R-JOB-30")
def test_records_of_one_job_are_equal() -> None:
    one, other = a_job(state=JobState.PENDING), a_job(state=JobState.DEAD)

    assert one == other
    assert len({one, other}) == 1


@pytest.mark.shows("R-JOB-30")
def test_records_of_two_jobs_differ() -> None:
    assert a_job(id=JobId("a")) != a_job(id=JobId("b"))
    assert a_job(id=JobId("a")) != "a"


@pytest.mark.parametrize(
    ("state", "status", "is_final", "will_retry"),
    [
        (JobState.SCHEDULED, Status.PENDING, False, False),
        (JobState.RUNNING, Status.RUNNING, False, False),
        (JobState.RETRYING, Status.FAILED, False, True),
        (JobState.DEAD, Status.FAILED, True, False),
        (JobState.COMPLETED, Status.COMPLETED, True, False),
    ],
)
def test_a_job_says_where_it_stands(
    state: JobState, status: Status, is_final: bool, will_retry: bool
) -> None:
    job: Job = a_job(state=state)

    assert (job.status, job.is_final, job.will_retry) == (status, is_final, will_retry)


def test_the_run_number_of_a_job_leaves_out_attempts_that_did_not_begin() -> None:
    assert a_job(attempt=5, unstarted=2).run_number == 3


@pytest.mark.shows("R-JOB-32")
@pytest.mark.parametrize(
    ("started_at", "finished_at", "duration"),
    [(NOW, NOW + 1_500, 1_500), (None, NOW, None), (NOW, None, None), (None, None, None)],
)
def test_a_summary_tells_how_long_the_last_attempt_took(
    started_at: int | None, finished_at: int | None, duration: int | None
) -> None:
    summary = JobSummary(
        id=JobId("a"),
        queue=QueueName("q"),
        task="send",
        state=JobState.COMPLETED,
        priority=0,
        attempt=1,
        failures=0,
        created_at=NOW,
        run_at=NOW,
        started_at=started_at,
        finished_at=finished_at,
        worker=None,
        reason=None,
    )

    assert summary.duration_ms == duration


@pytest.mark.parametrize(
    ("state", "change", "objection"),
    [
        (JobState.COMPLETED, {"priority": 1}, "it is already completed"),
        (JobState.DEAD, {"metadata": {}}, "it is already dead"),
        (JobState.RUNNING, {"priority": 1}, "it is running"),
        (JobState.RUNNING, {"delay_ms": 0}, "it is running"),
        (JobState.RUNNING, {"queue": QueueName("mail")}, "it is running"),
        (JobState.RUNNING, {"metadata": {"a": 1}}, ""),
        (JobState.BLOCKED, {"queue": QueueName("mail")}, ""),
        (JobState.BLOCKED, {"delay_ms": 0}, "it is blocked"),
        (JobState.BLOCKED, {"priority": 1}, ""),
        (JobState.PENDING, {"delay_ms": 1}, "a pending job cannot become scheduled"),
        (JobState.PENDING, {"delay_ms": 0}, ""),
        (JobState.SCHEDULED, {"delay_ms": 1}, ""),
        (JobState.RETRYING, {"priority": 1, "delay_ms": 0}, ""),
    ],
)
def test_an_update_fits_some_states(state: JobState, change: dict[str, Any], objection: str) -> None:
    assert JobUpdate(**change).objection_to(state) == objection


@pytest.mark.parametrize(
    ("change", "merged"),
    [
        (None, {"a": 1, "kept": None}),
        ({"b": 2}, {"a": 1, "kept": None, "b": 2}),
        ({"a": None}, {"kept": None}),
        ({"a": 3}, {"a": 3, "kept": None}),
    ],
)
def test_metadata_is_merged_key_by_key(change: dict[str, Any] | None, merged: dict[str, Any]) -> None:
    assert JobUpdate(metadata=change).merge_metadata({"a": 1, "kept": None}) == merged


def test_metadata_cannot_grow_too_large_by_merging() -> None:
    with pytest.raises(InvalidJob) as caught:
        JobUpdate(metadata={"b": "x" * 40_000}).merge_metadata({"a": "x" * 40_000})

    assert caught.value.field == "metadata"


# ------------------------------------------------------------------ keys under limits


def test_a_job_says_what_it_counts_as() -> None:
    keys = {"tenant": "acme", "host": "example.com"}

    assert new_job(limit_keys=keys).limit_keys == keys


def test_a_cost_is_a_whole_number_of_tokens() -> None:
    assert new_job(cost=0).cost == 0
    with pytest.raises(InvalidJob, match="cost must be a whole number from 0"):
        new_job(cost=-1)


def test_a_sequence_is_a_short_text() -> None:
    assert new_job(sequence="acme").sequence == "acme"
    with pytest.raises(InvalidJob, match="sequence must be a text"):
        new_job(sequence="")


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        (["tenant"], "must be a dict"),
        ({f"kind{n}": "x" for n in range(6)}, "at most 5"),
        ({"two words": "x"}, "kind 'two words'"),
        ({7: "x"}, "kind 7"),
        ({"tenant": ""}, "limit_keys must be a text"),
        ({"tenant": 7}, "limit_keys must be a text"),
    ],
)
def test_other_keys_are_refused(keys: Any, word: str) -> None:
    with pytest.raises(InvalidJob, match=word) as caught:
        new_job(limit_keys=keys)

    assert caught.value.field == "limit_keys"
