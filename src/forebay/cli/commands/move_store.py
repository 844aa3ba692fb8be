"""`forebay move`: move the contents of a store to another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click
import msgspec

from forebay.cli.options import DurationParam
from forebay.cli.output import Output, format_job_count, progress_bar
from forebay.cli.settings import Settings, read_settings
from forebay.cli.store_session import StoreSession, open_engine_at
from forebay.clock import SystemClock
from forebay.domain.store_move import MoveComparison, MoveResult
from forebay.errors import ConfigError
from forebay.operations.store_move import MoveEndpoint, StoreMover
from forebay.payload.blob_stores import FolderBlobs
from forebay.stores.url_redaction import redact_url


@click.command()
@click.option(
    "--from", "old", metavar="URL", required=True, help="The store to move, such as sqlite:///jobs.db."
)
@click.option(
    "--to", "new", metavar="URL", required=True, help="The target store; it is created if it does not exist."
)
@click.option(
    "--wait",
    type=DurationParam(),
    default="60s",
    show_default=True,
    help="How long to wait for workers and running jobs.",
)
@click.option("--finish", is_flag=True, help="Empty the old store; producers already write to the new one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")
def move(old: str, new: str, wait: int, finish: bool, as_json: bool) -> None:
    """Move jobs, schedules, limits, keys and settings to another store.

    Stop the workers of the old store, or let them drain; its queues are paused. Producers may continue to
    write to it. Start workers of the new store at any time. Restart producers with the new URL, then move
    again with --finish: it moves jobs that arrived meanwhile, and deletes all jobs from the old store. Safe
    to repeat; an interrupted move continues.
    """
    settings = read_settings({}, config=click.get_current_context().find_root().obj)
    with _open_endpoints(settings, old, new) as (source, target), _progress_bars() as report_progress:
        blobs = FolderBlobs(folder) if (folder := settings.get("blob_store")) else None
        mover = StoreMover(
            source, target, SystemClock(), actor=settings.actor, report=report_progress, blobs=blobs
        )
        result = mover.move(wait)
        comparison = mover.compare()
        if finish:
            result = msgspec.structs.replace(result, deleted=mover.finish(comparison, wait))
    _print_result(Output(as_json=as_json), source, target, result, comparison, is_finished=finish)
    if not comparison.agrees:
        click.get_current_context().exit(1)


@contextmanager
def _open_endpoints(settings: Settings, old: str, new: str) -> Iterator[tuple[MoveEndpoint, MoveEndpoint]]:
    """Open both stores without decryption: encrypted payloads are copied as they are."""
    with ExitStack() as stack:
        endpoints = []
        for url in (old, new):
            engine = open_engine_at(settings, url)
            session = StoreSession(settings, engine, redact_url(url))
            if not engine.features.is_shared:
                raise ConfigError(f"{session.name} lives inside one program, so a command cannot see it")
            if url == old:
                engine.check_schema()
            stack.callback(session.close)
            endpoints.append(MoveEndpoint(session.name, engine.location, session.store, session.reader))
        yield endpoints[0], endpoints[1]


@contextmanager
def _progress_bars() -> Iterator[Any]:
    """Show a progress bar for each phase."""
    with ExitStack() as stack:
        shown: dict[str, Any] = {}

        def report_progress(label: str, done: int, total: int) -> None:
            if label not in shown:
                stack.close()
                shown.clear()
                shown[label] = stack.enter_context(progress_bar(label, total))
            shown[label](done)

        yield report_progress


def _print_result(
    out: Output,
    old: MoveEndpoint,
    new: MoveEndpoint,
    result: MoveResult,
    comparison: MoveComparison,
    *,
    is_finished: bool,
) -> None:
    def print_text() -> None:
        more = [
            f"{number:,} {name if number > 1 else name[:-1]}"
            for name in ("queues", "limits", "schedules", "documents")
            if (number := getattr(result, name))
        ]
        click.echo(f"moved {', '.join([format_job_count(result.jobs), *more])} from {old.name} to {new.name}")
        if comparison.agrees:
            click.echo(
                f"{format_job_count(comparison.jobs)} compared: all are equal, checksum "
                f"{comparison.new_checksum}"
            )
        else:
            click.echo(
                f"{format_job_count(comparison.jobs)} compared: {len(comparison.missing):,} arrived "
                f"meanwhile, and "
                f"{len(comparison.different):,} differ in {new.name}"
            )
        if comparison.without_blob:
            click.echo(f"the blobs of {format_job_count(len(comparison.without_blob))} are missing")
        if comparison.blobs_unchecked:
            click.echo(
                f"{format_job_count(comparison.blobs_unchecked)} with blobs, which were not checked: "
                "name their folder with the setting blob_store (FOREBAY_BLOB_STORE)"
            )
        if comparison.forgotten:
            click.echo(
                f"{format_job_count(comparison.forgotten)} were moved earlier and have since been pruned or "
                f"deleted in {new.name}"
            )
        if is_finished:
            click.echo(
                f"{format_job_count(result.deleted)} deleted from {old.name}; its queues accept no more jobs"
            )
        else:
            click.echo("Next: restart producers with the new URL, then move again with --finish.")

    answer = {
        "from": old.name,
        "to": new.name,
        "moved": msgspec.to_builtins(result),
        "compared": {**msgspec.to_builtins(comparison), "agrees": comparison.agrees},
        "finished": is_finished,
    }
    out.print_result(answer, print_text)
