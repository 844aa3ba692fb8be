"""`forebay import`: jobs that wait in Celery, RQ or Huey come to a store of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import click
import msgspec

from forebay.cli.loading import load_app
from forebay.cli.opening import opened
from forebay.cli.output import Output, jobs_of, progress, table, text
from forebay.cli.settings import read_settings
from forebay.domain.job import check_queue_name, check_task_name
from forebay.errors import ConfigError, IllegalTransition
from forebay.stores.opening import without_password

if TYPE_CHECKING:
    from forebay.integrations.moving_in.found import Source
    from forebay.integrations.moving_in.importing import Imported, Names
    from forebay.integrations.moving_in.redis_side import RedisSide
    from forebay.stores.protocol import Engine

Command = Callable[..., None]
_SHOWN: Final = 20
_FILE: Final = "sqlite:///"


@click.group("import")
def import_jobs() -> None:
    """Bring jobs that wait in Celery, RQ or Huey to a store of ours.

    Stop the workers of the old queue first. Each job is stored here, and only then taken out there; an import
    that was interrupted is begun again with the same words, and makes nothing twice. What cannot be carried
    over is named and stays where it is; then the command ends with 1.
    """


def _shared(func: Command) -> Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document, for programs."),
        click.option(
            "--workers-stopped", is_flag=True, help="Do not look whether workers of the old queue live."
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
        click.option(
            "--task-map", "tasks", metavar="OLD=NEW", multiple=True, help="A task is called so here."
        ),
        click.option("--only", metavar="QUEUE", multiple=True, help="Import this queue, and no other."),
        click.option(
            "--queue", "queues", metavar="OLD=NEW", multiple=True, help="A queue is called so here."
        ),
        click.option(
            "--app", metavar="MODULE:APP", help="Take retries and time limits from the tasks of this app."
        ),
        click.option("--to", "new", metavar="URL", help="The store; by default that of the app."),
        click.option("--from", "old", metavar="URL", required=True, help="Where the jobs wait."),
    ):
        func = option(func)
    return func


def _pickle_option(func: Command) -> Command:
    return click.option(
        "--trust-pickle",
        is_flag=True,
        help="Read pickles that hold plain data. They come from whoever can write to the old queue.",
    )(func)


@import_jobs.command()
@_shared
@click.option("--prefix", default="", metavar="TEXT", help="The global_keyprefix of the broker.")
def celery(old: str, prefix: str, only: tuple[str, ...], **chosen: Any) -> None:
    """Import tasks of Celery from a Redis broker.

    Those that wait, those with an eta or a countdown, and those that a worker had when it died. They must be
    written as JSON, which is Celery's default.
    """
    side = _redis_side(old)
    from forebay.integrations.moving_in.celery_source import CelerySource  # noqa: PLC0415 - it needs redis

    _import(old, CelerySource(side, only=only, prefix=prefix), Chosen(only=only, **chosen))


@import_jobs.command()
@_shared
@_pickle_option
def rq(old: str, only: tuple[str, ...], trust_pickle: bool, **chosen: Any) -> None:
    """Import jobs of RQ: queued, scheduled and deferred ones."""
    side = _redis_side(old)
    from forebay.integrations.moving_in.rq_source import RqSource  # noqa: PLC0415 - it needs redis

    _import(old, RqSource(side, only=only, trust_pickle=trust_pickle), Chosen(only=only, **chosen))


@import_jobs.command()
@_shared
@_pickle_option
@click.option("--local-time", is_flag=True, help="Huey was made with utc=False: its times are local ones.")
def huey(old: str, only: tuple[str, ...], trust_pickle: bool, local_time: bool, **chosen: Any) -> None:
    """Import tasks of Huey from Redis, or from a file: --from sqlite:///huey.db.

    Those that wait and those that are scheduled.
    """
    from forebay.integrations.moving_in.huey_reading import Reading  # noqa: PLC0415 - `--help` stays quick

    if old.startswith(_FILE):
        from forebay.integrations.moving_in.huey_file_source import HueyFileSource  # noqa: PLC0415 - as above

        reading = Reading(only, trust_pickle, local_time)
        _import(old, HueyFileSource(unquote(old.removeprefix(_FILE)), reading), Chosen(only=only, **chosen))
        return
    side = _redis_side(old)
    from forebay.integrations.moving_in.huey_redis_source import (  # noqa: PLC0415 - it needs redis
        HueyRedisSource,
        stored_name,
    )

    # Before anything is imported: under another name jobs would come to another queue than the one named.
    only = tuple(stored_name(side, name) for name in only)
    pairs = (each.partition("=") for each in chosen["queues"])
    chosen["queues"] = tuple(f"{stored_name(side, name)}{equals}{new}" for name, equals, new in pairs)
    reading = Reading(only, trust_pickle, local_time)
    _import(old, HueyRedisSource(side, reading), Chosen(only=only, **chosen))


def _redis_side(url: str) -> RedisSide:
    try:
        from forebay.integrations.moving_in.redis_side import RedisSide  # noqa: PLC0415 - may be missing
    except ImportError as exc:
        raise ConfigError("this needs redis: pip install 'forebay[redis]'") from exc
    return RedisSide(url)


class Chosen(NamedTuple):
    """What all three commands are told."""

    new: str | None
    app: str | None
    only: tuple[str, ...]
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    dry_run: bool
    workers_stopped: bool
    as_json: bool


def _import(old: str, source: Source, chosen: Chosen) -> None:
    from forebay.integrations.moving_in.importing import Importer  # noqa: PLC0415 - `--help` stays quick

    if chosen.new is None and chosen.app is None:
        raise ConfigError("say where to: --to URL, or --app MODULE:APP for the store of an app")
    names = _names(chosen.queues, chosen.tasks)
    flags = {"url": chosen.new} if chosen.new else {"app": chosen.app}
    settings = read_settings(flags, config=click.get_current_context().find_root().obj)
    app = None if chosen.app is None else load_app(chosen.app)
    registry = None if app is None else app.registry
    place = without_password(old)
    with closing(source), opened(settings, create=not chosen.dry_run) as desk:
        if app is not None:
            _check_keys(app.engine, desk.engine)
        if not chosen.workers_stopped and not chosen.dry_run:
            _check_quiet(source, place)
        with _bar() as tell:
            importer = Importer(source, desk.store, desk.reader, names=names, registry=registry, tell=tell)
            done = importer.look() if chosen.dry_run else importer.run()
        _answer(Told(chosen, place, desk.name, done, () if app is None else tuple(app.queues())))
    if done.left or not (chosen.dry_run or done.agrees):
        click.get_current_context().exit(1)


def _check_keys(of_app: Engine, to: Engine) -> None:
    from forebay.app.sealed import encrypts  # noqa: PLC0415 - most apps have no keys

    if encrypts(of_app) and not encrypts(to):
        raise ConfigError(
            "the app encrypts its jobs, and --to names a store without its keys: leave --to out, which "
            "takes the store of the app, or set FOREBAY_ENCRYPTION_KEYS"
        )


def _check_quiet(source: Source, place: str) -> None:
    busy = source.busy()
    if busy:
        raise IllegalTransition(
            f"{place} has {busy}; stop them first, else a job could run there and here. If they are stopped, "
            "or are something else, say --workers-stopped"
        )


def _names(queues: Sequence[str], tasks: Sequence[str]) -> Names:
    from forebay.integrations.moving_in.importing import Names  # noqa: PLC0415 - as above

    return Names(_pairs("--queue", queues, check_queue_name), _pairs("--task-map", tasks, check_task_name))


def _pairs(option: str, given: Sequence[str], check: Callable[[str], None]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        old, equals, new = each.partition("=")
        if not equals or not old or not new:
            raise ConfigError(f"{option} {each!r:.80} should be OLD=NEW")
        check(new)
        pairs[old] = new
    return pairs


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """One bar, for the first pass: later ones bring what came meanwhile."""
    with ExitStack() as stack:
        shown: list[Callable[[int], None]] = []

        def tell(label: str, done: int, total: int) -> None:
            if not shown:
                shown.append(stack.enter_context(progress(label, total)))
            shown[0](done)

        yield tell


class Told(NamedTuple):
    """What is answered: what was asked for, what became of it, and the queues that a worker of the app serves
    unless it is told others."""

    chosen: Chosen
    place: str
    store: str
    done: Imported
    served: tuple[str, ...]

    @property
    def unserved(self) -> list[str]:
        """Queues that got jobs and that no task of the app names."""
        return [] if self.chosen.app is None else sorted({*self.done.queues} - {*self.served})

    @property
    def unmatched(self) -> list[str]:
        """Words of the command that fit nothing that was found: they may be mistyped."""
        return [
            f"{option} {word}"
            for option, words, found in (
                ("--only", self.chosen.only, self.done.old_queues),
                ("--queue", self.chosen.queues, self.done.old_queues),
                ("--task-map", self.chosen.tasks, self.done.old_tasks),
            )
            for word in words
            if word.partition("=")[0] not in found
        ]


def _answer(told: Told) -> None:
    done, is_dry = told.done, told.chosen.dry_run

    def people() -> None:
        verb = "would be imported" if is_dry else "imported"
        click.echo(text(f"{jobs_of(done.stored)} {verb} from {told.place} to {told.store}"))
        if done.already:
            click.echo(f"{jobs_of(done.already)} had been stored by an earlier import")
        if done.queues:
            table(("queue", "jobs"), list(done.queues.items()))
            table(("task", "jobs"), list(done.tasks.items()))
        _people_warned(done, knows_tasks=told.chosen.app is not None)
        if done.left:
            _people_left(done, is_dry=is_dry)
        if not is_dry:
            verified = "as many as were left" if done.remaining == len(done.left) else "not what was left"
            click.echo(f"{jobs_of(done.remaining)} in the old place now: {verified}")
        if told.unmatched:
            click.echo(text(f"Nothing was found for {', '.join(told.unmatched)}: is it mistyped?"))
        if told.unserved:
            _people_unserved(told)

    answer = {
        "from": told.place,
        "to": told.store,
        "dry_run": is_dry,
        **msgspec.to_builtins(done),
        "agrees": done.agrees,
        "unserved_queues": told.unserved,
        "unmatched": told.unmatched,
    }
    Output(as_json=told.chosen.as_json).answer(answer, people)


def _people_unserved(told: Told) -> None:
    queues = ",".join([*told.served, *told.unserved])
    click.echo(
        text(
            f"No task of the app names the queue {', '.join(told.unserved)}; a worker has to be told: "
            f"forebay worker {told.chosen.app} --queues {queues}"
        )
    )


def _people_warned(done: Imported, *, knows_tasks: bool) -> None:
    for what, count in done.dropped.items():
        click.echo(text(f"Not carried over, of {jobs_of(count)}: {what}"))
    for job_id in done.contested:
        click.echo(text(f"Job {job_id} was gone when it was to be taken out: it may have run there too"))
    if knows_tasks and done.unknown_tasks:
        click.echo(text(f"The app has no task {', '.join(done.unknown_tasks)}: their jobs wait until it has"))


def _people_left(done: Imported, *, is_dry: bool) -> None:
    reasons = Counter(left.reason for left in done.left)
    verb = "would stay" if is_dry else "stays" if len(done.left) == 1 else "stay"
    title = f"{jobs_of(len(done.left))} {verb} in the old place"
    table(("jobs", "why"), [(count, reason) for reason, count in reasons.most_common()], title=title)
    rows = [(left.id, left.queue, left.task, left.reason) for left in done.left[:_SHOWN]]
    table(("id", "queue", "task", "why"), rows)
    if len(done.left) > _SHOWN:
        click.echo(f"and {jobs_of(len(done.left) - _SHOWN)} more; --json names all")
