"""Messages of Huey."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from forebay.domain.job import MAX_TIMEOUT_MS
from forebay.domain.job_validation import MAX_PRIORITY, MIN_PRIORITY
from forebay.domain.json_values import Json
from forebay.domain.retry_policy import MAX_DELAY_MS, MAX_RETRIES, Curve, RetryPolicy
from forebay.integrations.importers.rq_message import fixed_retries
from forebay.integrations.importers.safe_pickle import PLAIN, FrozenName, decompress, is_pickle, read_pickle
from forebay.integrations.importers.source import (
    READ_ERRORS,
    ForeignJob,
    SkippedJob,
    UnreadableMessage,
    describe_error,
    short_text,
)

SYSTEM: Final = "huey"
_LINKS: Final = {
    "on_complete": "a pipeline (then)",
    "on_error": "an error handler",
    "chord_config": "a chord",
}


class HueyMessage(NamedTuple):
    """Huey's own fields, in its order; an older message has fewer of them."""

    id: Any = None
    name: Any = None
    eta: Any = None
    retries: Any = None
    retry_delay: Any = None
    priority: Any = None
    args: Any = None
    kwargs: Any = None
    on_complete: Any = None
    on_error: Any = None
    expires: Any = None
    expires_resolved: Any = None
    timeout: Any = None
    chord_config: Any = None
    retry_backoff: Any = None

    @staticmethod
    def __setstate__(*_: object) -> None:
        FrozenName.__setstate__()


_CLASSES: Final = {**PLAIN, ("huey.registry", "Message"): HueyMessage}


def read_message(
    data: bytes, queue: str, *, trust_pickle: bool, local_time: bool = False
) -> ForeignJob | SkippedJob:
    """Read a message from the queue or the schedule. Times without a zone are UTC, or local for a Huey with
    `utc=False`."""
    message = HueyMessage()
    try:
        message = _parse_message(data, trust_pickle=trust_pickle)
        return _build_job(message, queue, local_time=local_time)
    except (UnreadableMessage, *READ_ERRORS) as exc:
        return SkippedJob(
            id=short_text(message.id, "?"),
            task=short_text(message.name),
            queue=queue,
            reason=describe_error(exc),
        )


# Sentry's integration writes its own headers between the arguments, and removes them again before the task is
# called.
_OF_SENTRY: Final = "sentry_headers"


def _parse_message(data: bytes, *, trust_pickle: bool) -> HueyMessage:
    plain = decompress(data)
    if not is_pickle(plain):
        raise UnreadableMessage("its serializer is not Huey's own, which writes pickles")
    if not trust_pickle:
        raise UnreadableMessage(
            "it is a pickle: read with --trust-pickle if you trust all programs that can write there"
        )
    message = read_pickle(plain, _CLASSES, may_be_signed=True)
    if not isinstance(message, HueyMessage):
        raise UnreadableMessage("it is not a message of Huey's")
    return message


def _build_job(message: HueyMessage, queue: str, *, local_time: bool) -> ForeignJob:
    links = [link for name, link in _LINKS.items() if getattr(message, name) is not None]
    if links:
        raise UnreadableMessage(
            f"it has {' and '.join(links)}: let Huey finish it, or enqueue a workflow instead"
        )
    if not isinstance(message.id, str) or not isinstance(message.name, str):
        raise UnreadableMessage("it has no id or names no task")
    if not isinstance(message.args or (), (tuple, list)) or not isinstance(message.kwargs or {}, dict):
        raise UnreadableMessage("its arguments are none")
    expires = message.expires_resolved or (message.expires if isinstance(message.expires, datetime) else None)
    return ForeignJob(
        id=message.id,
        key=f"{SYSTEM}:{message.id}:{message.retries or 0}",  # a retry has the id of the first attempt
        task=message.name,
        queue=queue,
        args=tuple(message.args or ()),
        kwargs={name: value for name, value in (message.kwargs or {}).items() if name != _OF_SENTRY},
        run_at=_instant(message.eta, "eta", local_time=local_time),
        expires_at=_instant(expires, "expires", local_time=local_time),
        priority=_priority(message.priority),
        timeout_ms=_timeout(message.timeout),
        policy=_policy(message),
        details=_source_details(queue),
        dropped=()
        if expires is not None or message.expires is None
        else ("expires, which counts from the start",),
    )


def _source_details(queue: str) -> dict[str, Json]:
    return {"system": SYSTEM, "queue": queue}


def _instant(value: Any, name: str, *, local_time: bool) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise UnreadableMessage(f"its {name} is no time: {value!r:.60}")
    when = value.replace(tzinfo=UTC) if value.tzinfo is None and not local_time else value
    return max(0, int(when.timestamp() * 1_000))


def _priority(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)):
        raise UnreadableMessage(f"its priority is no number: {value!r:.60}")
    return min(max(int(value), MIN_PRIORITY), MAX_PRIORITY)


def _timeout(value: Any) -> int | None:
    return min(int(value * 1_000), MAX_TIMEOUT_MS) if isinstance(value, (int, float)) and value > 0 else None


def _policy(message: HueyMessage) -> RetryPolicy | None:
    retries, delay, factor = message.retries, message.retry_delay or 0, message.retry_backoff
    if not retries:
        return None
    if type(retries) is not int or not isinstance(delay, (int, float)) or delay < 0:
        raise UnreadableMessage(f"its retries are no numbers: {retries!r:.20}, {delay!r:.20}")
    base_ms = min(int(delay * 1_000), MAX_DELAY_MS)
    if not factor:
        return fixed_retries(retries, base_ms)
    return RetryPolicy(
        max_retries=min(retries, MAX_RETRIES),
        curve=Curve.EXPONENTIAL,
        base_ms=base_ms,
        factor=max(1.0, float(factor)),
        floor_ms=0,
        ceiling_ms=MAX_DELAY_MS,
        jitter_high=0.0,
    )
