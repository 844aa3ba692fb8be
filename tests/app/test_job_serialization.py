"""Jobs as dictionaries and as JSON, and back: nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from forebay import Forebay, InvalidJob, RetryPolicy
from forebay.app.job_serialization import job_from_dict, job_from_json, job_to_dict, job_to_json
from forebay.domain.job import Job, NewJob
from forebay.domain.retry_policy import Curve
from forebay.domain.settlement import Settlement
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import WORKER, claim, complete, fail

Way = Callable[[Any], Any]


def by_dict(job: Any) -> Any:
    return job_from_dict(type(job), job_to_dict(job))


def by_json(job: Any) -> Any:
    return job_from_json(type(job), job_to_json(job))


def by_text_of_another_library(job: Any) -> Any:
    return job_from_json(type(job), json.dumps(job_to_dict(job)))


WAYS = pytest.mark.parametrize("way", [by_dict, by_json, by_text_of_another_library])


def fields_of(job: Any) -> dict[str, Any]:
    """Every field: two records are equal already when they speak of one job."""
    return {name: getattr(job, name) for name in type(job).__struct_fields__}


def settled(end: Settlement, store: Store) -> None:
    store.settle_and_claim(WORKER, [end])


def send(to: str = "ada") -> None: ...


@pytest.fixture
def made(app: Forebay) -> NewJob:
    """A request in which as much as possible is said."""
    task = app.task(
        name="send",
        queue="mail",
        timeout=None,
        lease=60,
        retry_policy=RetryPolicy(curve=Curve.FIBONACCI, max_retries=7, jitter_low=-0.5),
        tags=["a", "ü"],
        metadata={"tenant": 7, "deep": [{"x": None}, 1.5, True]},
    )(send)
    call = task.using(
        id="own",
        priority=-7,
        run_at=datetime(2030, 1, 1, tzinfo=UTC),
        deadline=datetime(2030, 1, 2, tzinfo=UTC),
        expires=datetime(2030, 1, 3, tzinfo=UTC),
        unique_key="daily",
        unique_until="started",
        idempotency_key="pay-1",
        correlation_id="req-1",
    )
    return call.job("\x00 ~ ñ")


@pytest.mark.shows("R-JOB-31", "R-TEST-01")
@WAYS
def test_a_request_comes_back_as_it_was(made: NewJob, way: Way) -> None:
    back = way(made)

    assert (type(back), back) == (NewJob, made)


@pytest.mark.shows("R-JOB-31", "R-TEST-01")
@WAYS
def test_a_record_comes_back_with_all_its_fields_at_every_point_of_its_life(
    app: Forebay, made: NewJob, clock: ManualClock, way: Way
) -> None:
    handle = app.enqueue(made)
    records = [handle.refresh()]
    clock.set(1_893_456_000_000)
    for end in (fail, complete):
        [job] = app.client.write(lambda store: claim(store, queue=made.queue))
        records.append(job)
        app.client.write(partial(settled, end(job)))
        records.append(handle.refresh())
        clock.advance(seconds=60)

    assert [record.state for record in records] == [
        "scheduled",
        "running",
        "retrying",
        "running",
        "completed",
    ]
    for record in records:
        assert fields_of(way(record)) == fields_of(record)


@pytest.mark.shows("R-JOB-31")
def test_a_dictionary_holds_only_what_json_knows(app: Forebay, made: NewJob) -> None:
    fields = job_to_dict(app.enqueue(made).refresh())

    assert json.loads(json.dumps(fields)) == json.loads(job_to_json(app.job("own").refresh()))
    assert (fields["id"], fields["state"], fields["metadata"]) == ("own", "scheduled", made.metadata)


@pytest.mark.shows("R-ENQ-27")
@pytest.mark.parametrize("kind", [Job, NewJob])
def test_a_field_that_there_is_not_is_refused(app: Forebay, made: NewJob, kind: Any) -> None:
    job = made if kind is NewJob else app.enqueue(made).refresh()

    with pytest.raises(InvalidJob, match=f"a {kind.__name__} has no field 'colour'") as caught:
        job_from_dict(kind, {**job_to_dict(job), "colour": "red"})

    assert caught.value.field == "colour"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"priority": "high"}, "priority"),
        ({"priority": 101}, "priority"),
        ({"payload": "not base64!"}, "payload"),
        ({"metadata": []}, "metadata"),
        ({"tags": "a"}, "tags"),
        ({"policy": {"max_retries": -1}}, "policy"),
        ({"unique_until": "never"}, "unique_until"),
        ({"queue": "my queue"}, "queue"),
    ],
)
def test_a_wrong_value_is_named(made: NewJob, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        job_from_dict(NewJob, {**job_to_dict(made), **changes})

    assert caught.value.field == field


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidJob, match=r"a NewJob cannot be made of this: .*'task'"):
        job_from_dict(NewJob, {"priority": 1})


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"task": ', b"\xff", "[" * 100_000])
def test_what_is_no_job_as_json_is_refused(data: Any) -> None:
    with pytest.raises(InvalidJob, match="this is not a job as JSON"):
        job_from_json(NewJob, data)
