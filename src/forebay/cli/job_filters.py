"""Job filter options: jobs by id, or by conditions that all must hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import click
import msgspec
from msgspec.structs import replace

from forebay.cli.options import Command, InstantParam, JobStateParam, QueueParam, TaskParam
from forebay.cli.store_session import StoreSession
from forebay.domain.job import JobId
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import LIVE, JobState

FILTERS: Final = {
    "queues": click.option(
        "--queue", "-q", "queues", multiple=True, type=QueueParam(), help="In this queue; may be repeated."
    ),
    "states": click.option(
        "--state",
        "-s",
        "states",
        multiple=True,
        type=JobStateParam(),
        help=f"In this state: {', '.join(JobState)}; may be repeated.",
    ),
    "tasks": click.option(
        "--task", "tasks", multiple=True, type=TaskParam(), help="Of this task; may be repeated."
    ),
    "tags": click.option(
        "--tag", "tags", multiple=True, help="With this tag; a job must have all tags that are given."
    ),
    "metadata": click.option(
        "--metadata",
        multiple=True,
        metavar="KEY=VALUE",
        help="With this value (JSON or text) in its metadata.",
    ),
    "priority_from": click.option("--priority-from", type=int, help="With at least this priority."),
    "priority_to": click.option("--priority-to", type=int, help="With at most this priority."),
    "created_from": click.option(
        "--created-from", type=InstantParam(), help="Enqueued since: a time, or 2h for two hours ago."
    ),
    "created_before": click.option(
        "--created-before", type=InstantParam(), help="Enqueued before: a time, or 2h for two hours ago."
    ),
    "finished_before": click.option(
        "--finished-before",
        "--older-than",
        type=InstantParam(),
        help="Ended before: a time, or 7d for a week ago.",
    ),
    "unique_key": click.option("--unique-key", help="With this unique key."),
    "idempotency_key": click.option("--idempotency-key", help="With this idempotency key."),
    "correlation_id": click.option("--correlation-id", help="With this correlation id."),
    "parent_id": click.option("--parent", "parent_id", help="Enqueued by this job."),
    "text": click.option("--text", help="With this text in its arguments or its reason."),
}
_INSTANTS: Final = ("created_from", "created_before", "finished_before")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions as given; times relative to now are not resolved yet."""

    given: dict[str, Any]

    @property
    def is_empty(self) -> bool:
        return not self.given

    def to_query(self, session: StoreSession) -> JobQuery:
        """Return the query, with times by the store's clock.

        Raises QueueNotFound for an unknown queue, which would look like an empty one.
        """
        fields, now = dict(self.given), session.reader.now()
        for name in fields.get("queues", ()):
            session.find_queue(name)
        for name in _INSTANTS:
            if name in fields:
                fields[name] = fields[name](now)
        if "metadata" in fields:
            fields["metadata"] = parse_pairs(fields["metadata"])
        return JobQuery(**fields)


def with_filter(*without: str) -> Callable[[Command], Command]:
    """Pass the filter options to a command as `chosen`; the options in `without` are left out."""

    def decorate(func: Command) -> Command:
        @wraps(func)
        def command(*args: Any, **values: Any) -> None:
            given = {name: value for name in FILTERS if (value := values.pop(name, None)) not in (None, ())}
            _check_given(given)
            func(*args, chosen=Filter(given=given), **values)

        decorated: Command = command
        for name, option in reversed(FILTERS.items()):
            if name not in without:
                decorated = option(decorated)
        return decorated

    return decorate


def _check_given(given: dict[str, Any]) -> None:
    """Refuse an empty condition: it comes from an unset shell variable, and may match every job."""
    for name, value in given.items():
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise click.UsageError(f"The condition on {name.replace('_', ' ')} is empty; leave it out.")


def parse_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; refuse a key that is given twice."""
    return collect_distinct(parse_pair(pair) for pair in pairs)


def collect_distinct(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dictionary; refuse a repeated key."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise click.UsageError(f"{key} is given twice.")
        found[key] = value
    return found


def parse_pair(pair: str) -> tuple[str, Any]:
    """Parse KEY=VALUE; the value is JSON if it parses as JSON, else text."""
    key, sign, value = pair.partition("=")
    if not key or not sign:
        raise click.BadParameter(f"{pair!r:.60} is not KEY=VALUE")
    return key, parse_value(value)


def parse_value(value: str) -> Any:
    """Parse JSON; return the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def restrict_states(query: JobQuery, allowed: Collection[JobState], past: str) -> JobQuery:
    """Restrict the query to these states. Refuses conditions that no such job can meet: an empty result
    would be misleading."""
    for state in query.states:
        if state not in allowed:
            raise click.UsageError(f"No {state} job can be {past}.")
    states = tuple(state for state in query.states or JobState if state in allowed)
    if query.finished_before is not None and LIVE.issuperset(states):
        raise click.UsageError(
            "Waiting and running jobs have not ended; use --created-before to select jobs by the time they "
            "were enqueued."
        )
    return replace(query, states=states)


def resolve_ids(ids: Sequence[str], chosen: Filter, *, everything: bool) -> list[JobId]:
    """Return the ids without repeats; none if jobs are selected by conditions. Refuses both, and neither."""
    if ids and (everything or not chosen.is_empty):
        raise click.UsageError("Select jobs by id or by conditions, not by both.")
    if not ids and not everything and chosen.is_empty:
        raise click.UsageError("Select jobs by id, by conditions such as --queue, or all of them by --all.")
    return [JobId(job_id) for job_id in dict.fromkeys(ids)]
