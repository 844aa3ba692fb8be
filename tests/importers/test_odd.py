"""A message with unexpected values is left and named, and the others are imported."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
import redis
import rq
from huey.registry import Message

from forebay.integrations.importers import celery_message, huey_message
from forebay.integrations.importers import rq_message as rq_jobs
from forebay.integrations.importers.source import ForeignJob, SkippedJob
from tests.importers import shop
from tests.importers.support import bring, old_url


def of_celery(body: str = "[[], {}, {}]", **headers: Any) -> bytes:
    fields = {"task": "t", "id": "one", **headers}
    properties = {"delivery_tag": "1", "body_encoding": "base64", "priority": 0}
    packed = b64encode(body.encode()).decode()
    return json.dumps(
        {"body": packed, "content-type": "application/json", "headers": fields, "properties": properties}
    ).encode()


@pytest.mark.parametrize(
    "raw",
    [
        of_celery('[[{"__type__": "bytes", "__value__": 5}], {}, {}]'),
        of_celery('[[{"__type__": "uuid", "__value__": 5}], {}, {}]'),
        of_celery('[[{"__type__": [], "__value__": 5}], {}, {}]'),
        of_celery(timelimit=[float("inf"), None]),
        of_celery(timelimit=[float("inf"), None], id={"a": 1}),
        of_celery(eta="9999-12-31T23:59:59.999999-23:59", timelimit=[float("inf"), None]),
        b"[" * 100_000,
        b"{",
        b'{"headers": 5, "properties": []}',
    ],
)
def test_an_odd_message_of_celery_is_left(raw: bytes) -> None:
    assert isinstance(celery_message.read_message(raw, "celery"), SkippedJob)


@pytest.mark.parametrize(
    "odd",
    [
        {"retries": -1},
        {"retries": 1, "retry_delay": float("nan")},
        {"retries": 1, "retry_delay": 1, "retry_backoff": "much"},
        {"priority": float("nan")},
        {"priority": float("inf")},
        {"timeout": float("inf")},
        {"eta": datetime.min},  # noqa: DTZ901 - that is the case
        {"id": 10**5_000},
        {"kwargs": [1]},
    ],
)
def test_an_odd_message_of_huey_is_left(odd: dict[str, Any]) -> None:
    fields = dict.fromkeys(Message._fields) | {"id": "one", "name": "t"} | odd
    data = pickle.dumps(Message(**fields))

    found = huey_message.read_message(data, "shop", trust_pickle=True, local_time=True)

    assert isinstance(found, SkippedJob)
    assert found.queue == "shop"


def test_what_sentry_has_written_between_the_arguments_of_huey_does_not_come_along() -> None:
    kwargs = {"a": 1, "sentry_headers": {"sentry-trace": "00-11"}}
    fields = dict.fromkeys(Message._fields) | {"id": "one", "name": "t", "kwargs": kwargs}

    found = huey_message.read_message(
        pickle.dumps(Message(**fields)), "shop", trust_pickle=True, local_time=True
    )

    assert isinstance(found, ForeignJob)
    assert found.kwargs == {"a": 1}


@pytest.mark.parametrize(
    "odd",
    [
        {"retries_left": b"-1"},
        {"retries_left": b"1", "retry_intervals": b"[[1]]"},
        {"retries_left": b"1", "retry_intervals": b"[1, [2]]"},
        {"retries_left": b"1", "retry_intervals": b"[99999999999999999]"},
        {"timeout": b"soon"},
        {"dependency_ids": b"{"},
        {"data": b"\xff"},
    ],
)
def test_an_odd_job_of_rq_is_left(odd: Mapping[str, bytes]) -> None:
    fields = {"data": b'["t", null, [], {}]', "created_at": b"now", **odd}

    assert isinstance(rq_jobs.read_job("one", fields, "mail", trust_pickle=True), SkippedJob)


def test_the_others_are_imported(old: redis.Redis, url: str) -> None:
    queue = rq.Queue("mail", connection=old)
    odd = [queue.enqueue(shop.add, n, n) for n in range(3)]
    old.hset(f"rq:job:{odd[0].id}", "retries_left", "-1")
    late = queue.enqueue_at(datetime(2050, 1, 1), shop.add, 1, 2)  # noqa: DTZ001 - as most call it
    old.zadd("rq:scheduled:mail", {late.id: "inf"})
    child = queue.enqueue(shop.add, 1, 2, depends_on=odd[1])
    old.hset(f"rq:job:{child.id}", "dependency_ids", "{")

    done = bring("rq", "--from", old_url(), "--to", url, "--trust-pickle", status=1)

    assert (done["stored"], done["agrees"]) == (2, True)
    assert {left["id"] for left in done["left"]} == {odd[0].id, late.id, child.id}
