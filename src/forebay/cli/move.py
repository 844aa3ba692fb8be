"""`forebay move`: everything in one store goes to another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click
import msgspec

from forebay.app.blobs import FolderBlobs
from forebay.app.moving import Mover, Place
from forebay.cli.opening import Desk, engine_at
from forebay.cli.options import Length
from forebay.cli.output import Output, jobs_of, progress
from forebay.cli.settings import Settings, read_settings
from forebay.clock import SystemClock
from forebay.domain.moving import Comparison, Moved
from forebay.errors import ConfigError
from forebay.stores.opening import without_password


@click.command()
@click.option(
    "--from", "old", metavar="URL", required=True, help="The store to move, such as sqlite:///jobs.db."
)
@click.option("--to", "new", metavar="URL", required=True, help="Where to; it is created if there is none.")
@click.option(
    "--wait", type=Length(), default="60s", show_default=True, help="For workers and jobs that run still."
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
    with _both(settings, old, new) as (source, target), _bars() as tell:
        blobs = FolderBlobs(folder) if (folder := settings.get("blobs")) else None
        mover = Mover(source, target, SystemClock(), actor=settings.actor, tell=tell, blobs=blobs)
        moved = mover.move(wait)
        compared = mover.compare()
        if finish:
            moved = msgspec.structs.replace(moved, deleted=mover.finish(compared, wait))
    _answer(Output(as_json=as_json), source, target, moved, compared, is_finished=finish)
    if not compared.agrees:
        click.get_current_context().exit(1)


@contextmanager
def _both(settings: Settings, old: str, new: str) -> Iterator[tuple[Place, Place]]:
    """Both stores, as they are kept: what is encrypted goes as it is."""
    with ExitStack() as stack:
        places = []
        for url in (old, new):
            engine = engine_at(settings, url)
            desk = Desk(settings, engine, without_password(url))
            if not engine.features.is_shared:
                raise ConfigError(f"{desk.name} lives inside one program, so a command cannot see it")
            if url == old:
                engine.check_schema()
            stack.callback(desk.close)
            places.append(Place(desk.name, engine.place, desk.store, desk.reader))
        yield places[0], places[1]


@contextmanager
def _bars() -> Iterator[Any]:
    """A bar for each thing that is done."""
    with ExitStack() as stack:
        shown: dict[str, Any] = {}

        def tell(label: str, done: int, total: int) -> None:
            if label not in shown:
                stack.close()
                shown.clear()
                shown[label] = stack.enter_context(progress(label, total))
            shown[label](done)

        yield tell


def _answer(
    out: Output, old: Place, new: Place, moved: Moved, compared: Comparison, *, is_finished: bool
) -> None:
    def people() -> None:
        more = [
            f"{number:,} {what if number > 1 else what[:-1]}"
            for what in ("queues", "limits", "schedules", "documents")
            if (number := getattr(moved, what))
        ]
        click.echo(f"moved {', '.join([jobs_of(moved.jobs), *more])} from {old.name} to {new.name}")
        if compared.agrees:
            click.echo(
                f"{jobs_of(compared.jobs)} compared: all are the same, checksum {compared.new_checksum}"
            )
        else:
            click.echo(
                f"{jobs_of(compared.jobs)} compared: {len(compared.missing):,} came meanwhile, and "
                f"{len(compared.different):,} are another in {new.name}"
            )
        if compared.without_blob:
            click.echo(f"the blobs of {jobs_of(len(compared.without_blob))} are gone")
        if compared.blobs_unchecked:
            click.echo(
                f"{jobs_of(compared.blobs_unchecked)} with blobs, which were not looked for: name their "
                "folder with the setting blobs (FOREBAY_BLOBS)"
            )
        if compared.forgotten:
            click.echo(
                f"{jobs_of(compared.forgotten)} had come before and been forgotten or deleted in {new.name}"
            )
        if is_finished:
            click.echo(f"{jobs_of(moved.deleted)} taken out of {old.name}; its queues take no more jobs")
        else:
            click.echo("Next: restart producers with the new address, then move once more with --finish.")

    answer = {
        "from": old.name,
        "to": new.name,
        "moved": msgspec.to_builtins(moved),
        "compared": {**msgspec.to_builtins(compared), "agrees": compared.agrees},
        "finished": is_finished,
    }
    out.answer(answer, people)
