"""Decoding of Celery's messages, with protocol 1 or 2 and a JSON body."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from forebay.domain.job import MAX_TIMEOUT_MS
from forebay.domain.json_values import Json
from forebay.integrations.importers.safe_pickle import decompress
from forebay.integrations.importers.source import (
    READ_ERRORS,
    ForeignJob,
    SkippedJob,
    UnreadableMessage,
    describe_error,
    short_text,
)

SYSTEM: Final = "celery"
JSON: Final = "application/json"
# Celery's own name for zlib's format.
_ZLIB_NAMES: Final = {"application/x-gzip", "gzip", "zlib"}
_LINKS: Final = {
    "callbacks": "a callback (link)",
    "errbacks": "an errback (link_error)",
    "chain": "a rest of a chain",
    "chord": "a chord",
}
_OWN: Final = "celery."
# Headers that Celery and its transports write themselves.
_HEADERS: Final = frozenset(
    {
        *("argsrepr", "compression", "eta", "expires", "group", "group_index", "id", "ignore_result"),
        *("kwargsrepr", "lang", "origin", "parent_id", "redelivered", "replaced_task_nesting", "retries"),
        *("root_id", "shadow", "stamped_headers", "stamps", "task", "timelimit", "x-match"),
    }
)
# Trace context, which Sentry and OpenTelemetry write: it belongs to the program that has sent the message.
_TRACE_HEADERS: Final = frozenset({"baggage", "headers", "traceparent", "tracestate"})
_TYPES: Final[dict[str, Callable[[Any], Any]]] = {
    "bytes": lambda value: value.encode(),
    "base64": b64decode,
    "datetime": datetime.fromisoformat,
    "date": lambda value: datetime.fromisoformat(value).date(),
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": lambda value: UUID(hex=value["hex"]),
}


def read_message(raw: bytes, queue: str) -> ForeignJob | SkippedJob:
    """Decode a message from a list of the broker."""
    message: dict[str, Any] = {}
    try:
        message = _object(_parse_json(raw), "the message")
        return _build_job(message, queue)
    except (UnreadableMessage, *READ_ERRORS) as exc:
        headers, properties = (message.get(part) for part in ("headers", "properties"))
        header_fields = headers if isinstance(headers, dict) else {}
        property_fields = properties if isinstance(properties, dict) else {}
        job_id = header_fields.get("id") or property_fields.get("correlation_id") or "?"
        return SkippedJob(
            id=short_text(job_id, "?"),
            task=short_text(header_fields.get("task")),
            queue=queue,
            reason=describe_error(exc),
        )


def _build_job(message: Mapping[str, Any], queue: str) -> ForeignJob:
    headers = _object(message.get("headers") or {}, "headers")
    properties = _object(message.get("properties") or {}, "properties")
    body = _body(message, headers, properties)
    if "task" in headers:
        args, kwargs, links = _parse_v2(body)
        fields = headers
    else:
        args, kwargs, links = _parse_v1(body)
        fields = body
    task, job_id = str(fields.get("task") or ""), str(fields.get("id") or "")
    if not task or not job_id:
        raise UnreadableMessage("it names no task or has no id, so it is no task of Celery's")
    _check_alone(task, links)
    # A retry is another message under the same id. One that a dead worker had taken is put back with its tag.
    tag = properties.get("delivery_tag") or fields.get("retries") or 0
    return ForeignJob(
        id=job_id,
        key=f"{SYSTEM}:{job_id}:{tag}",
        task=task,
        queue=queue,
        args=tuple(args),
        kwargs=kwargs,
        run_at=_instant(fields.get("eta"), "eta"),
        expires_at=_instant(fields.get("expires"), "expires"),
        priority=_priority(properties.get("priority")),
        timeout_ms=_timeout(fields),
        details=_source_details(fields, queue),
        dropped=_unsupported_fields(fields, headers),
    )


def _body(message: Mapping[str, Any], headers: Mapping[str, Any], properties: Mapping[str, Any]) -> Any:
    kind = message.get("content-type")
    if kind != JSON:
        raise UnreadableMessage(f"its serializer is {kind!s:.60}, and only JSON is read")
    body = message.get("body")
    if not isinstance(body, str):
        raise UnreadableMessage("it has no body")
    encoding = properties.get("body_encoding")
    if encoding not in (None, "base64"):
        raise UnreadableMessage(f"its body is encoded as {encoding!s:.60}, and not as base64")
    try:
        data = b64decode(body, validate=True) if encoding else body.encode()
    except ValueError as exc:
        raise UnreadableMessage("its body is no base64") from exc
    compression = headers.get("compression")
    if compression is not None:
        if compression not in _ZLIB_NAMES:
            raise UnreadableMessage(f"it is compressed by {compression!s:.60}, and only zlib is known")
        data = decompress(data)
    return _parse_json(data)


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data, object_hook=_decode_typed)
    except READ_ERRORS as exc:
        raise UnreadableMessage(f"its JSON cannot be read: {exc!s:.80}") from exc


def _decode_typed(value: dict[str, Any]) -> Any:
    """Decode Celery's JSON for types that JSON does not have."""
    if value.keys() != {"__type__", "__value__"}:
        return value
    kind = value["__type__"]
    if kind not in _TYPES:
        raise UnreadableMessage(f"an argument has the type {kind!s:.60}, which its program has added to JSON")
    return _TYPES[kind](value["__value__"])


def _parse_v2(body: Any) -> tuple[list[Any], dict[str, Any], Mapping[str, Any]]:
    match body:
        case [list(args), dict(kwargs), dict(links)]:
            return args, kwargs, links
    raise UnreadableMessage("its body is not that of a task (protocol 2)")


def _parse_v1(body: Any) -> tuple[list[Any], dict[str, Any], Mapping[str, Any]]:
    match body:
        case {"args": list(args), "kwargs": dict(kwargs)}:
            return args, kwargs, body
    raise UnreadableMessage("its body is not that of a task")


def _check_alone(task: str, links: Mapping[str, Any]) -> None:
    """Raise if other tasks are linked to this one."""
    links_found = [link for name, link in _LINKS.items() if links.get(name)]
    if links_found:
        raise UnreadableMessage(
            f"it has {' and '.join(links_found)}: let Celery finish it, or enqueue a workflow instead"
        )
    if task.startswith(_OWN):
        raise UnreadableMessage(f"{task} is a task of Celery's own")


def _instant(value: Any, name: str) -> int | None:
    if value is None:
        return None
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as exc:
        raise UnreadableMessage(f"its {name} is no time: {value!r:.60}") from exc
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0, int(when.timestamp() * 1_000))


def _priority(value: Any) -> int | None:
    """Return Forebay's priority. In Celery on Redis 0 comes first and 9 last; here higher values come
    first."""
    return -min(max(value, 0), 9) if type(value) is int and value else None


def _timeout(fields: Mapping[str, Any]) -> int | None:
    match fields.get("timelimit"):
        case [int(hard) | float(hard), _] if hard > 0:
            return min(int(hard * 1_000), MAX_TIMEOUT_MS)
    return None


def _source_details(fields: Mapping[str, Any], queue: str) -> dict[str, Json]:
    details: dict[str, Json] = {"system": SYSTEM, "queue": queue}
    for name in ("retries", "group", "root_id", "parent_id"):
        value = fields.get(name)
        if isinstance(value, (str, int)) and value and value != fields.get("id"):
            details[name] = value
    return details


def _unsupported_fields(fields: Mapping[str, Any], headers: Mapping[str, Any]) -> tuple[str, ...]:
    dropped = []
    match fields.get("timelimit"):
        case [_, soft] if soft:
            dropped.append("soft time limit")
    if fields.get("retries"):
        dropped.append("retries made so far")
    if fields.get("group"):
        dropped.append("membership of a group (kept as a note)")
    if own := sorted(name for name in headers if _is_own(name)):
        dropped.append(f"headers of your own: {', '.join(own):.200}")
    return tuple(dropped)


def _is_own(header: str) -> bool:
    return header not in _HEADERS and header not in _TRACE_HEADERS and not header.startswith("sentry-")


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableMessage(f"{name} should be an object")
    return value
