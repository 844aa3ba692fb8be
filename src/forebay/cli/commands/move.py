"""`forebay move`: everything in one store goes to another one."""

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
from forebay.payload.blobs import FolderBlobs
from forebay.stores.factory import redact_url


@click.command()
@click.option(
    "--from", "old", metavar="URL", required=True, help="The store to move, such as sqlite:///jobs.db."
)
@click.option("--to", "new", metavar="URL", required=True, help="Where to; it is created if there is none.")
@click.option(
    "--wait",
    type=DurationParam(),
    default="60s",
    show_default=True,
    help="For workers and jobs that run still.",
)
@click.option("--finish", is_flag=True, help="Producers write to the new store: empty the old one.")
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document, for programs.")
def move(old: str, new: str, wait: int, finish: bool, as_json: bool) -> None:
    """Move jobs, schedules, limits, keys and settings to another store.

    Stop the workers of the old store, or let them drain; its queues are paused. Producers may go on writing
    to it. Start workers of the new store when you like. Restart producers with the new address, and then
    move once more with --finish: it brings what came meanwhile, and takes all jobs out of the old store.
    Safe to repeat; a move that was interrupted goes on.
    """
    settings = read_settings({}, config=click.get_current_context().find_root().obj)
    with _open_endpoints(settings, old, new) as (source, target), _progress_bars() as tell:
        blobs = FolderBlobs(folder) if (folder := settings.get("blob_store")) else None
        mover = StoreMover(source, target, SystemClock(), actor=settings.actor, report=tell, blobs=blobs)
        moved = mover.move(wait)
        compared = mover.compare()
        if finish:
            moved = msgspec.structs.replace(moved, deleted=mover.finish(compared, wait))
    _print_result(Output(as_json=as_json), source, target, moved, compared, is_finished=finish)
    if not compared.agrees:
        click.get_current_context().exit(1)


@contextmanager
def _open_endpoints(settings: Settings, old: str, new: str) -> Iterator[tuple[MoveEndpoint, MoveEndpoint]]:
    """Both stores, as they are kept: what is encrypted goes as it is."""
    with ExitStack() as stack:
        places = []
        for url in (old, new):
            engine = open_engine_at(settings, url)
            desk = StoreSession(settings, engine, redact_url(url))
            if not engine.features.is_shared:
                raise ConfigError(f"{desk.name} lives inside one program, so a command cannot see it")
            if url == old:
                engine.check_schema()
            stack.callback(desk.close)
            places.append(MoveEndpoint(desk.name, engine.location, desk.store, desk.reader))
        yield places[0], places[1]


@contextmanager
def _progress_bars() -> Iterator[Any]:
    """A bar for each thing that is done."""
    with ExitStack() as stack:
        shown: dict[str, Any] = {}

        def tell(label: str, done: int, total: int) -> None:
            if label not in shown:
                stack.close()
                shown.clear()
                shown[label] = stack.enter_context(progress_bar(label, total))
            shown[label](done)

        yield tell


def _print_result(
    out: Output,
    old: MoveEndpoint,
    new: MoveEndpoint,
    result: MoveResult,
    comparison: MoveComparison,
    *,
    is_finished: bool,
) -> None:
    def people() -> None:
        more = [
            f"{number:,} {what if number > 1 else what[:-1]}"
            for what in ("queues", "limits", "schedules", "documents")
            if (number := getattr(result, what))
        ]
        click.echo(f"moved {', '.join([format_job_count(result.jobs), *more])} from {old.name} to {new.name}")
        if comparison.agrees:
            click.echo(
                f"{format_job_count(comparison.jobs)} compared: all are the same, checksum "
                f"{comparison.new_checksum}"
            )
        else:
            click.echo(
                f"{format_job_count(comparison.jobs)} compared: {len(comparison.missing):,} came "
                f"meanwhile, and "
                f"{len(comparison.different):,} are another in {new.name}"
            )
        if comparison.without_blob:
            click.echo(f"the blobs of {format_job_count(len(comparison.without_blob))} are gone")
        if comparison.blobs_unchecked:
            click.echo(
                f"{format_job_count(comparison.blobs_unchecked)} with blobs, which were not looked "
                f"for: name their "
                "folder with the setting blob_store (FOREBAY_BLOB_STORE)"
            )
        if comparison.forgotten:
            click.echo(
                f"{format_job_count(comparison.forgotten)} had come before and been forgotten or "
                f"deleted in {new.name}"
            )
        if is_finished:
            click.echo(
                f"{format_job_count(result.deleted)} taken out of {old.name}; its queues take no more jobs"
            )
        else:
            click.echo("Next: restart producers with the new address, then move once more with --finish.")

    answer = {
        "from": old.name,
        "to": new.name,
        "moved": msgspec.to_builtins(result),
        "compared": {**msgspec.to_builtins(comparison), "agrees": comparison.agrees},
        "finished": is_finished,
    }
    out.print_result(answer, people)
