"""Query for jobs, pages of its result, and their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobSummary
from forebay.domain.json_values import Json
from forebay.errors import ConfigError

MAX_PAGE: Final = 1_000
MAX_SEQ_DIGITS: Final = 18
EXACT_UP_TO: Final = 10_000


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for jobs: all conditions must hold, an empty one holds for every job.

    `text` is searched for in the payload and in the reason of the end; `metadata` compares top-level keys;
    all `tags` must be there.
    """

    queues: tuple[QueueName, ...] = ()
    states: tuple[JobState, ...] = ()
    tasks: tuple[str, ...] = ()
    priority_from: int | None = None
    priority_to: int | None = None
    created_from: int | None = None
    created_before: int | None = None
    finished_before: int | None = None
    unique_key: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    parent_id: JobId | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Json] = {}
    text: str | None = None

    def __post_init__(self) -> None:
        # Half of a surrogate pair comes from a command line that is no UTF-8. No job has one, and every
        # engine would fail on it in its own way.
        try:
            msgspec.json.encode(self)
        except UnicodeEncodeError as exc:
            raise ConfigError(f"no job can hold the text {exc.object!r:.60}, so none can be found") from exc


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list. `after` continues it and is None at the end. A page may have fewer jobs than its
    limit, or none, and still have a next one: the number of scanned rows is limited, too. Then
    `scanned_back_to` is when the last scanned job was created: older ones were not scanned."""

    jobs: tuple[JobSummary, ...]
    after: str | None = None
    scanned_back_to: int | None = None


def page_end(after: str) -> int:
    """Return the seq at which an earlier page ended; raise ConfigError for other texts."""
    if not after.isdecimal() or not after.isascii() or len(after) > MAX_SEQ_DIGITS:
        raise ConfigError(f"{after!r:.60} is not the end of an earlier page")
    return int(after)


def check_limit(limit: int) -> None:
    """Raise ConfigError unless a page may have this many lines."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise ConfigError(f"limit must be a whole number from 1 to {MAX_PAGE}, not {limit!r}")
