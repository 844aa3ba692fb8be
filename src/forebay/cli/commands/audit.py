"""`forebay audit`: show, verify and export the audit log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import IO, Any

import click
import msgspec
from click.core import ParameterSource

from forebay.cli.audit_export import AuditExporter, export_until_stopped
from forebay.cli.audit_sinks import open_sink
from forebay.cli.errors import ExitStatus
from forebay.cli.json_format import audit_json
from forebay.cli.log_options import log_options, set_up_logs
from forebay.cli.options import DurationParam, InstantParam, QueueParam, limit_option, url_options, with_store
from forebay.cli.output import Output, format_instant, json_line, print_table, spinner, text
from forebay.cli.redaction import redact_data
from forebay.cli.store_session import StoreSession
from forebay.domain.job_history import ACTIONS, Changes, Event, EventKind
from forebay.domain.job_query import MAX_PAGE
from forebay.errors import ConfigError
from forebay.operations.audit_check import AuditCheck, check_audit
from forebay.operations.audit_search import AuditQuery, audit_entries, audit_page
from forebay.telemetry.log_setup import LogFormat

NumberedEvent = tuple[int, Event]


@click.group(invoke_without_command=True)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in EventKind]),
    help="Only events of this kind; may be repeated.",
)
@click.option("--actor", metavar="NAME", help="Only actions of this actor: an API key, or cli:USER@HOST.")
@click.option("--request", metavar="ID", help="Only actions of this request to a server.")
@click.option("--queue", type=QueueParam(), help="Only events of this queue.")
@click.option("--job", metavar="ID", help="Only events of this job.")
@click.option("--since", type=InstantParam(), help="Only from this time on, such as 24h or an ISO time.")
@click.option("--until", type=InstantParam(), help="Only before this time.")
@click.option(
    "--all", "everything", is_flag=True, help="Also events without an actor, such as expired leases."
)
@click.option("--after", type=int, metavar="NUMBER", help="Continue below this entry.")
@click.option("--lines", is_flag=True, help="All matching entries, one JSON object per line.")
@limit_option(100)
@url_options
@click.pass_context
def audit(ctx: click.Context, /, **values: Any) -> None:
    """Show the audit log, newest first.

    Entries are stored for 90 days, also when their jobs are deleted. Each entry shows the values before and
    after the change; arguments and secrets are left out. `verify` checks that no entry was changed or
    removed, `export` sends new entries elsewhere.
    """
    if ctx.invoked_subcommand is None:
        _print_log(**values)
    elif any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in values):
        raise click.UsageError(f"write options after `{ctx.invoked_subcommand}`")


@with_store()
def _print_log(
    session: StoreSession, out: Output, *, lines: bool, after: int | None, limit: int, **wanted: Any
) -> None:
    query = _build_query(session.reader.now(), **wanted)
    if lines:
        for line in audit_entries(session.reader, query):
            click.echo(msgspec.json.encode(redact_data(audit_json(line))))
        return
    found, after = _find_events(session, query, limit, after)
    out.print_result(
        {"lines": [audit_json(line) for line in found], "after": after}, lambda: _print_events(found)
    )


@audit.command("verify")
@click.option(
    "--against",
    type=click.File("rb"),
    metavar="FILE",
    help="Also compare with this file, which `export` has written.",
)
@with_store()
def verify(session: StoreSession, out: Output, against: IO[bytes] | None) -> None:
    """Check that no entry of the audit log was changed or removed.

    Each entry carries the hash of the entry before it. The first entry with a wrong hash is named, and the
    exit status is 1. A user with write access to the store can also rewrite all hashes: --against finds
    that, and a log that was truncated. Entries of the last seconds are counted and not checked yet.
    """
    with spinner(f"checking the audit log of {session.name}"):
        found = check_audit(session.reader, exported=_load_hashes(against) if against else None)
    out.print_result(_check_json(found), lambda: click.echo(text(_describe_check(found))))
    if found.flaw is not None:
        click.get_current_context().exit(ExitStatus.BAD_ANSWER)


@audit.command("export")
@click.option(
    "--to",
    "destination",
    metavar="DESTINATION",
    required=True,
    help="file:PATH, syslog:udp://HOST:PORT, syslog:tcp://HOST:PORT, otlp:http://HOST:PORT or otlp:https://...",
)
@click.option("--once", is_flag=True, help="Send the present entries, and exit.")
@click.option(
    "--every", "every_ms", type=DurationParam(), default="5s", show_default=True, help="How often to poll."
)
@click.option("--restart", is_flag=True, help="Start again with the oldest entry.")
@log_options
@with_store()
def export(
    session: StoreSession, out: Output, log_format: LogFormat | None, log_level: str | None, **options: Any
) -> None:
    """Send new entries of the audit log to a file, to syslog or to an OpenTelemetry collector.

    An export continues where an earlier one to the same destination has ended. Hashes are checked on the
    way; an entry with a wrong hash is sent, named in the log, and makes the exit status 1. Runs until a stop
    signal.
    """
    set_up_logs(log_format, log_level, session.settings)
    with closing(open_sink(options["destination"])) as sink:
        exporter = AuditExporter(session.store, session.reader, sink, restarts=options["restart"])
        if options["once"]:
            exporter.send_all()
        else:
            export_until_stopped(exporter, options["every_ms"] / 1_000)
    answer = {"sent": exporter.sent, "flaws": exporter.flaws}
    out.print_message(answer, f"{exporter.sent:,} entries sent, {exporter.flaws:,} with a wrong hash")
    if exporter.flaws:
        click.get_current_context().exit(ExitStatus.BAD_ANSWER)


def _load_hashes(file: IO[bytes]) -> dict[int, str]:
    """Read the hashes of an export, by position."""
    try:
        lines = [msgspec.json.decode(line, type=_ExportedEntry) for line in file]
    except msgspec.MsgspecError as exc:
        raise ConfigError(f"{file.name} is not an export of an audit log: {exc}") from exc
    return {line.position: line.hash for line in lines}


class _ExportedEntry(msgspec.Struct, frozen=True):
    position: int
    hash: str


def _check_json(found: AuditCheck) -> dict[str, Any]:
    return {
        "is_sound": found.flaw is None,
        "lines": found.lines,
        "head": None if found.head is None else found.head._asdict(),
        "unchained": found.unchained,
        "flaw": None if found.flaw is None else msgspec.to_builtins(found.flaw),
    }


def _describe_check(found: AuditCheck) -> str:
    newer = f"; {found.unchained:,} newer ones are not in the chain yet" if found.unchained else ""
    if found.flaw is None:
        end = "" if found.head is None else f", up to position {found.head.position} ({found.head.hash})"
        return f"{found.lines:,} entries are intact{end}{newer}"
    number = "" if found.flaw.number is None else f" (entry {found.flaw.number} of the log)"
    return (
        f"position {found.flaw.position}{number} is wrong: {found.flaw.reason}. "
        f"{found.lines:,} entries before it are intact{newer}"
    )


def _build_query(
    now: int,
    *,
    kinds: tuple[str, ...],
    everything: bool,
    since: Callable[[int], int] | None,
    until: Callable[[int], int] | None,
    **same: str | None,
) -> AuditQuery:
    return AuditQuery(
        kinds=frozenset(map(EventKind, kinds)) or (None if everything else ACTIONS),
        since=since and since(now),
        until=until and until(now),
        actor=same["actor"],
        request=same["request"],
        queue=same["queue"],
        job_id=same["job"],
    )


def _find_events(
    session: StoreSession, query: AuditQuery, limit: int, after: int | None
) -> tuple[list[NumberedEvent], int | None]:
    """Return up to `limit` matching events, however far back they are."""
    found: list[NumberedEvent] = []
    while True:
        page = audit_page(session.reader, query, limit=min(MAX_PAGE, limit - len(found)), after=after)
        found += page.entries
        after = page.after
        if after is None or len(found) == limit:
            return found, after


def _print_events(found: list[NumberedEvent]) -> None:
    rows = [
        (
            number,
            format_instant(event.occurred_at),
            event.kind,
            event.actor_name,
            event.job_id or event.queue,
            " ".join(filter(None, (event.detail, _format_changes(event.changes)))),
        )
        for number, event in found
    ]
    print_table(("number", "at", "kind", "actor", "of", "detail"), rows)


def _format_changes(changes: Changes) -> str:
    """Return the changes in words."""
    parts = [
        f"{name}: {json_line(before)} -> {json_line(after)}" for name, (before, after) in changes.items()
    ]
    return f"({'; '.join(parts)})" if parts else ""
