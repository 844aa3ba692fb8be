"""Update of a waiting job: its priority, time, metadata or queue."""

from __future__ import annotations

import msgspec

from forebay.domain.job import LATEST_AT, QueueName, check_not_reserved
from forebay.domain.job_states import JobState, is_final
from forebay.domain.job_validation import (
    MAX_PRIORITY,
    MIN_PRIORITY,
    check_integer,
    check_metadata,
    check_queue_name,
)
from forebay.domain.json_values import Json


class JobUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Update of a waiting job; None leaves a field as it is.

    `delay_ms` 0 makes a scheduled or retrying job pending now. `metadata` is merged key by key, and a value
    of None removes its key. `queue` moves it to another queue.
    """

    priority: int | None = None
    delay_ms: int | None = None
    metadata: dict[str, Json] | None = None
    queue: QueueName | None = None

    def __post_init__(self) -> None:
        if self.queue is not None:
            check_queue_name(self.queue)
            check_not_reserved(self.queue)
        if self.priority is not None:
            check_integer("priority", self.priority, MIN_PRIORITY, MAX_PRIORITY)
        if self.delay_ms is not None:
            check_integer("delay_ms", self.delay_ms, 0, LATEST_AT)
        if self.metadata is not None:
            check_metadata(self.metadata)

    @property
    def changed_fields(self) -> list[str]:
        """Return the names of the fields to change."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]

    def objection_to(self, state: JobState) -> str:
        """Return why a job in this state cannot be updated like this; empty if it can."""
        if is_final(state):
            return f"it is already {state}"
        if state is JobState.RUNNING and any(name != "metadata" for name in self.changed_fields):
            return "it is running"
        if state is JobState.BLOCKED and self.delay_ms is not None:
            return "it is blocked"
        if state is JobState.PENDING and self.delay_ms:
            return "a pending job cannot become scheduled"
        return ""

    def merge_metadata(self, metadata: dict[str, Json]) -> dict[str, Json]:
        """Return metadata with these changes: None removes its key. Raises InvalidJob if it grows too
        large."""
        changes = self.metadata or {}
        merged = {
            key: value for key, value in {**metadata, **changes}.items() if changes.get(key, "") is not None
        }
        check_metadata(merged)
        return merged
