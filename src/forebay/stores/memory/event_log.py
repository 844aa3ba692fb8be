"""Event log of the in-memory engine: the history of jobs, and the entries of the audit log."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.job import Job, JobId
from forebay.domain.job_history import MAX_EVENTS, Changes, Event, EventKind
from forebay.stores.memory.text_check import check_writable
from forebay.stores.memory.undo_log import UndoLog


class EventLog(UndoLog):
    """Events as dictionaries by number. Operator actions are entries of the audit log."""

    now: int

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[int, Event] = {}
        self.job_events: dict[JobId, tuple[int, ...]] = {}
        self.audit: dict[int, Event] = {}

    def record_job_event(
        self,
        kind: EventKind,
        job: Job,
        *,
        actor: str | None = None,
        attempt: int | None = None,
        detail: str = "",
        changes: Changes | None = None,
    ) -> None:
        """Record an event of a job."""
        self.record(
            Event(
                kind=kind,
                job_id=job.id,
                queue=job.queue,
                attempt=attempt,
                actor=actor,
                detail=detail,
                changes=changes or {},
            )
        )

    def record(self, event: Event) -> None:
        """Add an event to the history, or count it as omitted if its job has the most already. Add an
        action to the audit log."""
        check_writable(event.job_id, event.queue, event.actor, event.detail)
        event = replace(event, occurred_at=event.occurred_at or self.now)
        if event.is_history:
            self._record_history(event)
        if event.is_action:
            self.write(self.audit, self.next_number("event"), event)

    def _record_history(self, event: Event) -> None:
        if event.job_id is None:
            self.write(self.events, self.next_number("event"), event)
        elif len(self.job_events.get(event.job_id, ())) < MAX_EVENTS:
            self._append_job_event(event.job_id, event)
        else:
            self._count_omitted(event.job_id, event)

    def remove_event(self, number: int) -> None:
        job_id = self.events[number].job_id
        self.write(self.events, number, None)
        if job_id is not None and number in self.job_events.get(job_id, ()):
            rest = tuple(event_number for event_number in self.job_events[job_id] if event_number != number)
            self.write(self.job_events, job_id, rest or None)

    def _append_job_event(self, job_id: JobId, event: Event) -> None:
        number = self.next_number("event")
        self.write(self.events, number, event)
        self.write(self.job_events, job_id, (*self.job_events.get(job_id, ()), number))

    def _count_omitted(self, job_id: JobId, event: Event) -> None:
        for number in self.job_events[job_id]:
            omitted = self.events[number]
            if omitted.kind is EventKind.EVENTS_OMITTED:
                self.write(
                    self.events,
                    number,
                    replace(omitted, occurred_at=event.occurred_at, detail=str(int(omitted.detail) + 1)),
                )
                return
        omitted = Event(
            kind=EventKind.EVENTS_OMITTED,
            occurred_at=event.occurred_at,
            job_id=job_id,
            queue=event.queue,
            detail="1",
        )
        self._append_job_event(job_id, omitted)
