"""An exchange as its script takes it, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from forebay.domain.history import cut
from forebay.domain.job import JobId, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.note import Note, as_kept
from forebay.domain.outcome import AttemptError
from forebay.domain.settlement import Settlement
from forebay.stores.protocol import Cancel, Exchange, Refusal, Want
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.inserting import Intake, done
from forebay.stores.redis.rows import job_from_row, line_stored, step_stored
from forebay.stores.rows import json_text, line_text, progress_text

_FIRST = 2  # the number of the first argument after the request


def exchange(
    connection: Connection,
    new_id: Callable[[], JobId],
    worker: WorkerId,
    settlements: Sequence[Settlement],
    wants: Sequence[Want],
    room: int,
    known: Sequence[Lease] | None,
    notes: Sequence[Note],
) -> Exchange:
    intake = Intake(new_id)
    arguments: list[bytes | str] = []
    ask = {
        "worker": worker,
        "notes": [_note(note, arguments) for note in notes],
        "ends": [_ending(end, arguments, intake) for end in settlements],
        "wants": [_want(want) for want in wants],
        "room": room,
        **intake.request(_FIRST + len(arguments)),
    }
    if known is not None:
        ask["known"] = [tuple(lease) for lease in known]
    answer = done(connection.run("exchange", ask, *arguments, *intake.arguments))
    return _exchanged(settlements, notes, answer)


def _exchanged(settlements: Sequence[Settlement], notes: Sequence[Note], answer: list[Any]) -> Exchange:
    _, answers, jobs, adopted, cancels, next_due_ms, noted = answer
    pairs = list(zip(settlements, answers, strict=True))
    return Exchange(
        settled=tuple(end.job_id for end, said in pairs if said == b"settled"),
        repeated=tuple(end.job_id for end, said in pairs if said == b"repeated"),
        refused=tuple(
            Refusal(lease=Lease(end.job_id, end.attempt), reason=said.decode())
            for end, said in pairs
            if said not in (b"settled", b"repeated")
        ),
        jobs=tuple(map(job_from_row, jobs)),
        adopted=tuple(map(job_from_row, adopted)),
        cancels=cancels_of(cancels),
        next_due_ms=next_due_ms,
        unnoted=tuple(
            Refusal(lease=note.lease, reason=said.decode())
            for note, said in zip(notes, noted, strict=True)
            if said
        ),
    )


def cancels_of(found: Sequence[Sequence[bytes]]) -> tuple[Cancel, ...]:
    return tuple(Cancel(JobId(job_id.decode()), reason.decode()) for job_id, reason in found)


def _want(want: Want) -> tuple[Any, ...]:
    return (
        want.queue,
        want.most,
        want.lease_ms or False,
        False if want.gates is None else list(want.gates),
    )


def _ending(end: Settlement, arguments: list[bytes | str], intake: Intake) -> tuple[Any, ...]:
    for place, job in enumerate(end.follow_ups):
        intake.add(job if job.parent_id is not None else replace(job, parent_id=end.job_id), place)
    return (
        end.job_id,
        end.attempt,
        end.ending.value,
        end.state.value,
        end.failures,
        end.crashes,
        end.delay_ms,
        False if end.reason is None else _written(end.reason),
        False if end.gate is None else _written(end.gate),
        False if end.result is None else _argument(end.result, arguments),
        False if end.error is None else _error_text(end.error),
        len(end.follow_ups),
    )


def _written(text: str) -> str | bool:
    """The text; True for one that cannot be written. Only the holder of a lease is told so, by the script."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return text


def _error_text(error: AttemptError) -> str | bool:
    try:
        return json_text(cut(error))
    except UnicodeEncodeError:
        return True


def _argument(value: bytes, arguments: list[bytes | str]) -> int:
    """The number under which a script finds these bytes."""
    arguments.append(value)
    return _FIRST + len(arguments) - 1


def _note(note: Note, arguments: list[bytes | str]) -> tuple[Any, ...]:
    kept = as_kept(note, 0)
    lines: list[Any] = []
    for line in kept.lines:
        lines += (line.place or False, line_stored(line, line_text(line)))
    steps: list[Any] = []
    for step in kept.steps:
        steps += (_written(step.name), _argument(step_stored(step), arguments))
    attempt = note.lease.attempt
    progress = False if kept.progress is None else f"{attempt} {progress_text(kept.progress)}"
    return (note.lease.job_id, attempt, progress, lines, steps)
