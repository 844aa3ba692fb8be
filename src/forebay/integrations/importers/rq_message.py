"""Jobs of RQ as they are in its hashes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from forebay.domain.job import MAX_TIMEOUT_MS, OnFailure
from forebay.domain.json_values import Json
from forebay.domain.retry_policy import MAX_RETRIES, Curve, RetryPolicy
from forebay.integrations.importers.safe_pickle import decompress, is_pickle, read_pickle
from forebay.integrations.importers.source import (
    READ_ERRORS,
    ForeignJob,
    SkippedJob,
    UnreadableMessage,
    describe_error,
)

SYSTEM: Final = "rq"
# A failed job is not retried, unless its message has retries.
NO_RETRY: Final = RetryPolicy(max_retries=0)
_PARTS: Final = 4
_UNSUPPORTED: Final = {
    "success_callback_name": "a callback (on_success)",
    "failure_callback_name": "a callback (on_failure)",
    "stopped_callback_name": "a callback (on_stopped)",
    "webhooks": "webhooks",
    "repeats_left": "repetitions (make it a schedule)",
}
_DROPPED: Final = ("result_ttl", "failure_ttl", "group_id")
_SUCCEEDED_STATES: Final = ("finished",)
_WAITING_STATES: Final = ("queued", "scheduled", "deferred", "created", None)


class RqTimes(NamedTuple):
    """Due time and expiry of a job, as the server has them; milliseconds since 1970."""

    run_at: int | None = None
    expires_at: int | None = None


NO_TIMES: Final = RqTimes()


def read_job(
    job_id: str,
    fields: Mapping[str, bytes],
    queue: str,
    *,
    trust_pickle: bool,
    times: RqTimes = NO_TIMES,
    parents: Mapping[str, str | None] | None = None,
) -> ForeignJob | SkippedJob:
    """Read a job from its hash; `parents` are the states of its dependencies, None for a missing one."""
    task = ""
    try:
        if "data" not in fields:
            raise UnreadableMessage("there is no job of this id any more")
        task, args, kwargs = _parse_call(fields["data"], trust_pickle=trust_pickle)
        _check_alone(fields)
        parent_ids(fields)  # raises if they are unreadable
        meta, lost = _meta(fields, trust_pickle=trust_pickle)
        policy, shortened = _policy(fields)
        return ForeignJob(
            id=job_id,
            key=f"{SYSTEM}:{job_id}:{_text(fields, 'created_at')}",
            task=task,
            queue=queue,
            args=args,
            kwargs=kwargs,
            run_at=times.run_at,
            expires_at=times.expires_at,
            timeout_ms=_timeout(fields),
            policy=policy,
            depends_on=_dependencies(fields, parents or {}),
            on_failure=OnFailure.IGNORE
            if _text(fields, "allow_dependency_failures") == "1"
            else OnFailure.HOLD,
            details={"system": SYSTEM, "queue": queue, **meta},
            dropped=(*lost, *shortened, *(name for name in _DROPPED if fields.get(name))),
        )
    except (UnreadableMessage, *READ_ERRORS) as exc:
        return SkippedJob(id=job_id, task=task, queue=queue, reason=describe_error(exc))


def parent_ids(fields: Mapping[str, bytes]) -> list[str]:
    """Return the ids of the job's dependencies."""
    several = _text(fields, "dependency_ids")
    if several:
        ids = _json(several, "dependency_ids")
        return [str(parent_id) for parent_id in ids] if isinstance(ids, list) else []
    single = _text(fields, "dependency_id")
    return [single] if single else []


def _dependencies(fields: Mapping[str, bytes], parents: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the dependencies that have not ended; raise if one has failed, or runs."""
    may_fail = _text(fields, "allow_dependency_failures") == "1"
    waiting = []
    for parent, state in parents.items():
        if state in _WAITING_STATES:
            waiting.append(parent)
        elif state == "started":
            raise UnreadableMessage(
                f"it depends on {parent}, which is running: import again when it has ended"
            )
        elif state not in _SUCCEEDED_STATES and not may_fail:
            raise UnreadableMessage(f"it depends on {parent}, which is {state} in RQ")
    return tuple(waiting)


def _parse_call(packed: bytes, *, trust_pickle: bool) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    match _decode_value(decompress(packed), trust_pickle=trust_pickle):
        case [str(task), instance, list() | tuple() as args, dict(kwargs)]:
            if instance is not None:
                raise UnreadableMessage(
                    f"{task} is a method of an object, and a Forebay job names a function"
                )
            return task, tuple(args), kwargs
    raise UnreadableMessage("its data is not that of a job of RQ")


def _decode_value(data: bytes, *, trust_pickle: bool) -> Any:
    if is_pickle(data):
        if not trust_pickle:
            raise UnreadableMessage(
                "it is a pickle: read with --trust-pickle if you trust all programs that can write there"
            )
        return read_pickle(data)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise UnreadableMessage("its serializer is neither JSON nor pickle") from exc


def _check_alone(fields: Mapping[str, bytes]) -> None:
    features = [feature for name, feature in _UNSUPPORTED.items() if fields.get(name)]
    if features:
        raise UnreadableMessage(f"it has {' and '.join(features)}: let RQ finish it")


# Sentry's own entry in the jobs of a program that reports to it.
_OF_SENTRY: Final = "_sentry_trace_headers"


def _meta(fields: Mapping[str, bytes], *, trust_pickle: bool) -> tuple[dict[str, Json], list[str]]:
    """Return the job's metadata, as far as JSON can hold them, and the names of the dropped ones."""
    if not fields.get("meta"):
        return {}, []
    try:
        meta = _decode_value(fields["meta"], trust_pickle=trust_pickle)
        if isinstance(meta, dict):
            meta = {name: value for name, value in meta.items() if name != _OF_SENTRY}
        json.dumps(meta, allow_nan=False)
    except (UnreadableMessage, ValueError, TypeError):
        return {}, ["meta"]
    return {"meta": meta}, []


def _policy(fields: Mapping[str, bytes]) -> tuple[RetryPolicy | None, list[str]]:
    retries = _number(fields, "retries_left")
    if not retries:
        return None, []
    intervals = _json(_text(fields, "retry_intervals") or "[]", "retry_intervals")
    first = intervals[0] if isinstance(intervals, list) and intervals else 0
    if type(first) is not int or first < 0:
        raise UnreadableMessage(f"its retry_intervals are no seconds: {first!r:.60}")
    dropped = ["retry intervals after the first"] if len({*intervals}) > 1 else []
    return fixed_retries(retries, first * 1_000), dropped


def fixed_retries(retries: int, delay_ms: int) -> RetryPolicy:
    """Return a policy with this number of retries and a fixed delay."""
    return RetryPolicy(
        max_retries=min(retries, MAX_RETRIES),
        curve=Curve.FIXED,
        base_ms=delay_ms,
        floor_ms=0,
        ceiling_ms=max(delay_ms, RetryPolicy().ceiling_ms),
        jitter_high=0.0,
    )


def _timeout(fields: Mapping[str, bytes]) -> int | None:
    seconds = _number(fields, "timeout")
    return min(seconds * 1_000, MAX_TIMEOUT_MS) if seconds and seconds > 0 else None


def _number(fields: Mapping[str, bytes], name: str) -> int | None:
    text = _text(fields, name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError as exc:
        raise UnreadableMessage(f"its {name} is no number: {text:.60}") from exc


def _text(fields: Mapping[str, bytes], name: str) -> str:
    return fields.get(name, b"").decode(errors="replace")


def _json(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as exc:
        raise UnreadableMessage(f"its {name} cannot be read: {text:.60}") from exc
