"""Validation of job fields: bounds, and checks of names, texts, numbers, tags and metadata."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from forebay.domain.json_values import MAX_DEPTH, Json, is_deeper
from forebay.errors import InvalidJob, PayloadError

MAX_PAYLOAD: Final = 1_048_576
MAX_ENCRYPTION_OVERHEAD: Final = 256  # bytes that encryption adds at most; they are not counted
MAX_METADATA: Final = 65_536
MAX_QUEUE_NAME: Final = 50
MAX_TASK_NAME: Final = 100
MAX_KEY: Final = 200
MAX_TAGS: Final = 20
MAX_LIMIT_KEYS: Final = 5
MIN_PRIORITY: Final = -100
MAX_PRIORITY: Final = 100
_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,50}\Z")
_ENCRYPTED: Final = re.compile(rb"fb1 [0-9a-f]{8} key=")
# Control characters would end up in terminals and logs; half of a surrogate pair cannot be written as UTF-8.
_BAD_TEXT: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@lru_cache(maxsize=1024)
def check_queue_name(name: str) -> None:
    """Raise InvalidJob unless this can name a queue."""
    if type(name) is not str or not _QUEUE_NAME.match(name):
        raise InvalidJob(
            f"{name!r:.60} cannot name a queue: use 1 to {MAX_QUEUE_NAME} letters, digits, "
            "underscores, hyphens or dots",
            field="queue",
        )


@lru_cache(maxsize=1024)
def check_task_name(name: str) -> None:
    """Raise InvalidJob unless this can name a task."""
    check_text("task", name, max_length=MAX_TASK_NAME)


def check_size(field: str, data: bytes, role: str = "payload") -> None:
    """Raise PayloadError unless a job can keep these bytes; encrypted ones may be somewhat longer."""
    size = len(data)
    if size > MAX_PAYLOAD and (size > MAX_PAYLOAD + MAX_ENCRYPTION_OVERHEAD or not _ENCRYPTED.match(data)):
        raise PayloadError(
            f"the {role} has {size:,} bytes, the limit is {MAX_PAYLOAD:,}; "
            "keep the data elsewhere and pass a reference",
            field=field,
        )


def check_text(field: str, value: str, max_length: int = MAX_KEY) -> None:
    """Raise InvalidJob unless this is a short line of plain text."""
    if type(value) is not str or not 1 <= len(value) <= max_length:
        raise InvalidJob(
            f"{field} must be a text of 1 to {max_length} characters, not {value!r:.60}", field=field
        )
    if _BAD_TEXT.search(value):
        raise InvalidJob(f"{field} must not contain control characters: {value!r:.60}", field=field)


def check_integer(field: str, value: int, minimum: int, maximum: int) -> None:
    """Raise InvalidJob unless this is a whole number in the range."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidJob(
            f"{field} must be a whole number from {minimum} to {maximum}, not {value!r:.60}", field=field
        )


def check_tags(tags: tuple[str, ...]) -> None:
    """Raise InvalidJob unless these can be a job's tags."""
    if len(tags) > MAX_TAGS:
        raise InvalidJob(f"a job has at most {MAX_TAGS} tags, not {len(tags)}", field="tags")
    for tag in tags:
        check_text("tags", tag, max_length=MAX_QUEUE_NAME)


def check_kind(kind: str, field: str = "limit_keys") -> None:
    """Raise InvalidJob unless this can be the kind of a key: the same letters as in queue names."""
    if type(kind) is not str or not _QUEUE_NAME.match(kind):
        raise InvalidJob(f"{field} cannot have a key of kind {kind!r:.60}", field=field)


def check_limit_keys(keys: dict[str, str]) -> None:
    """Raise InvalidJob unless these can be a job's keys under limits."""
    if type(keys) is not dict or len(keys) > MAX_LIMIT_KEYS:
        raise InvalidJob(f"limit_keys must be a dict of at most {MAX_LIMIT_KEYS}", field="limit_keys")
    for kind, value in keys.items():
        check_kind(kind)
        check_text("limit_keys", value)


def check_metadata(metadata: dict[str, Json]) -> None:
    """Raise InvalidJob unless this can be encoded as a JSON object of a sensible size, and decoded again."""
    if type(metadata) is not dict:
        raise InvalidJob(f"metadata must be a dict, not {type(metadata).__name__}", field="metadata")
    try:
        text = msgspec.json.encode(metadata)
        if is_deeper(text):
            raise _too_deep_error()
        # JSON does not preserve everything: NaN would be null, bytes a text, a number as key a text.
        is_plain = msgspec.json.decode(text) == metadata
    except RecursionError as exc:
        raise _too_deep_error() from exc
    except (TypeError, ValueError) as exc:
        raise InvalidJob(f"metadata cannot be written as JSON: {exc}", field="metadata") from exc
    if not is_plain:
        raise InvalidJob(
            "metadata must be plain JSON: dict, list, str, int, float, bool, None", field="metadata"
        )
    size = len(text)
    if size > MAX_METADATA:
        raise InvalidJob(
            f"metadata has {size:,} bytes as JSON, the limit is {MAX_METADATA:,}", field="metadata"
        )


def _too_deep_error() -> InvalidJob:
    return InvalidJob(
        f"metadata is nested deeper than {MAX_DEPTH} levels, or contains itself", field="metadata"
    )
