"""Jobs for tests that care about one or two of their fields."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from forebay.domain.job import Job, JobId, QueueName, UniqueUntil, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.retry_policy import RetryPolicy

NOW = 1_700_000_000_000

_PLAIN = Job(
    id=JobId("01HF7YAT00AAAAAAAAAAAAAAAA"),
    seq=1,
    queue=QueueName("default"),
    task="send",
    state=JobState.RUNNING,
    payload=b"{}",
    priority=0,
    policy=RetryPolicy(),
    attempt=1,
    failures=0,
    crashes=0,
    created_at=NOW,
    updated_at=NOW,
    ready_at=NOW,
    run_at=NOW,
    rank=NOW,
    age_capped=False,
    lane=None,
    worker=WorkerId("w1"),
    started_at=NOW,
    lease_expires_at=NOW + 30_000,
    lease_ms=None,
    extension_ms=86_400_000,
    timeout_ms=1_800_000,
    deadline_at=None,
    expires_at=None,
    unique_key=None,
    unique_until=UniqueUntil.FINAL,
    idempotency_key=None,
    metadata={},
    tags=(),
    correlation_id=None,
    parent_id=None,
    cancel_reason=None,
    errors=(),
)


def a_job(**changes: Any) -> Job:
    """A running job at its first attempt, with some fields changed."""
    return replace(_PLAIN, **changes)
