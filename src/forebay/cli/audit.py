"""`forebay audit`: who did what, when, and what was before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from forebay.app.audit import DEEDS, AuditQuery, audit_lines, audit_page
from forebay.cli.opening import Desk
from forebay.cli.options import Moment, QueueParam, at_store, limit_option
from forebay.cli.output import Output, json_line, moment, table
from forebay.cli.redacting import redacted_data
from forebay.cli.shapes import iso
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.query import MAX_PAGE

Line = tuple[int, Event]


@click.command()
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in EventKind]),
    help="Only these; may be repeated.",
)
@click.option("--actor", metavar="NAME", help="Only what this one did: an API key, or cli:USER@HOST.")
@click.option("--request", metavar="ID", help="Only what was done by this request to a server.")
@click.option("--queue", type=QueueParam(), help="Only of this queue.")
@click.option("--job", metavar="ID", help="Only of this job.")
@click.option("--since", type=Moment(), help="Only from this time on, such as 24h or an ISO time.")
@click.option("--until", type=Moment(), help="Only before this time.")
@click.option("--all", "everything", is_flag=True, help="Also what nobody did: leases taken over, and so on.")
@click.option("--after", type=int, metavar="NUMBER", help="Go on below this line.")
@click.option("--lines", is_flag=True, help="All that fit, one JSON object a line: for a copy to keep.")
@limit_option(100)
@at_store()
def audit(desk: Desk, out: Output, *, lines: bool, after: int | None, limit: int, **wanted: Any) -> None:
    """Show the audit log, newest first.

    It is kept for 90 days. What was before and what is after stands beside each line; arguments and secrets
    are not told.
    """
    query = _query(desk.reader.now(), **wanted)
    if lines:
        for line in audit_lines(desk.reader, query):
            click.echo(msgspec.json.encode(redacted_data(line_json(line))))
        return
    found, after = _found(desk, query, limit, after)
    out.answer({"lines": [line_json(line) for line in found], "after": after}, lambda: _table(found))


def _query(
    now: int,
    *,
    kinds: tuple[str, ...],
    everything: bool,
    since: Callable[[int], int] | None,
    until: Callable[[int], int] | None,
    **same: str | None,
) -> AuditQuery:
    return AuditQuery(
        kinds=frozenset(map(EventKind, kinds)) or (None if everything else DEEDS),
        since=since and since(now),
        until=until and until(now),
        actor=same["actor"],
        request=same["request"],
        queue=same["queue"],
        job_id=same["job"],
    )


def line_json(line: Line) -> dict[str, Any]:
    """A line of the log."""
    number, event = line
    return {
        "number": number,
        "at": iso(event.at),
        "kind": event.kind,
        "actor": event.who or None,
        "request": event.request or None,
        "queue": event.queue,
        "job_id": event.job_id,
        "detail": event.detail,
        "before": {name: before for name, (before, _) in event.changes.items()},
        "after": {name: after for name, (_, after) in event.changes.items()},
    }


def _found(desk: Desk, query: AuditQuery, limit: int, after: int | None) -> tuple[list[Line], int | None]:
    """As many as are wanted, however far back they are."""
    found: list[Line] = []
    while True:
        page = audit_page(desk.reader, query, limit=min(MAX_PAGE, limit - len(found)), after=after)
        found += page.lines
        after = page.after
        if after is None or len(found) == limit:
            return found, after


def _table(found: list[Line]) -> None:
    rows = [
        (
            number,
            moment(event.at),
            event.kind,
            event.who,
            event.job_id or event.queue,
            " ".join(filter(None, (event.detail, _said(event.changes)))),
        )
        for number, event in found
    ]
    table(("number", "at", "kind", "actor", "of", "detail"), rows)


def _said(changes: Changes) -> str:
    """What was changed, in words."""
    parts = [
        f"{name}: {json_line(before)} -> {json_line(after)}" for name, (before, after) in changes.items()
    ]
    return f"({'; '.join(parts)})" if parts else ""
