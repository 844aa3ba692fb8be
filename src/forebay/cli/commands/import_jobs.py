"""`forebay import`: jobs that wait in Celery, RQ or Huey come to a store of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import click
import msgspec

from forebay.cli.app_loader import load_app
from forebay.cli.output import Output, format_job_count, print_table, progress_bar, text
from forebay.cli.settings import read_settings
from forebay.cli.store_session import open_session
from forebay.domain.job import check_queue_name, check_task_name
from forebay.errors import ConfigError, IllegalTransition
from forebay.stores.factory import redact_url

if TYPE_CHECKING:
    from forebay.integrations.importers.importer import ImportResult, NameMapping
    from forebay.integrations.importers.redis_client import SourceRedis
    from forebay.integrations.importers.source import Source
    from forebay.stores.contract.engine import Engine

Command = Callable[..., None]
_MAX_SHOWN: Final = 20
_FILE: Final = "sqlite:///"


@click.group("import")
def import_jobs() -> None:
    """Bring jobs that wait in Celery, RQ or Huey to a store of ours.

    Stop the workers of the old queue first. Each job is stored here, and only then taken out there; an import
    that was interrupted is begun again with the same words, and makes nothing twice. What cannot be carried
    over is named and stays where it is; then the command ends with 1.
    """


def _with_import_options(func: Command) -> Command:
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


def _with_pickle_option(func: Command) -> Command:
    return click.option(
        "--trust-pickle",
        is_flag=True,
        help="Read pickles that hold plain data. They come from whoever can write to the old queue.",
    )(func)


@import_jobs.command()
@_with_import_options
@click.option("--prefix", default="", metavar="TEXT", help="The global_keyprefix of the broker.")
def celery(old: str, prefix: str, only: tuple[str, ...], **chosen: Any) -> None:
    """Import tasks of Celery from a Redis broker.

    Those that wait, those with an eta or a countdown, and those that a worker had when it died. They must be
    written as JSON, which is Celery's default.
    """
    side = _source_redis(old)
    from forebay.integrations.importers.celery_source import CelerySource  # noqa: PLC0415 - it needs redis  # noqa: PLC0415 - only this command needs it

    _run_import(old, CelerySource(side, only=only, prefix=prefix), ImportOptions(only=only, **chosen))


@import_jobs.command()
@_with_import_options
@_with_pickle_option
def rq(old: str, only: tuple[str, ...], trust_pickle: bool, **chosen: Any) -> None:
    """Import jobs of RQ: queued, scheduled and deferred ones."""
    side = _source_redis(old)
    from forebay.integrations.importers.rq_source import RqSource  # noqa: PLC0415 - it needs redis  # noqa: PLC0415 - only this command needs it

    _run_import(old, RqSource(side, only=only, trust_pickle=trust_pickle), ImportOptions(only=only, **chosen))


@import_jobs.command()
@_with_import_options
@_with_pickle_option
@click.option("--local-time", is_flag=True, help="Huey was made with utc=False: its times are local ones.")
def huey(old: str, only: tuple[str, ...], trust_pickle: bool, local_time: bool, **chosen: Any) -> None:
    """Import tasks of Huey from Redis, or from a file: --from sqlite:///huey.db.

    Those that wait and those that are scheduled.
    """
    from forebay.integrations.importers.huey_options import HueyReadOptions  # noqa: PLC0415 - `--help` stays quick  # noqa: PLC0415 - only this command needs it

    if old.startswith(_FILE):
        from forebay.integrations.importers.huey_sqlite_source import HueySqliteSource  # noqa: PLC0415 - as above

        reading = HueyReadOptions(only, trust_pickle, local_time)
        _run_import(
            old,
            HueySqliteSource(unquote(old.removeprefix(_FILE)), reading),
            ImportOptions(only=only, **chosen),
        )
        return
    side = _source_redis(old)
    from forebay.integrations.importers.huey_redis_source import HueyRedisSource, find_stored_name  # noqa: PLC0415 - only this command needs it

    # Before anything is imported: under another name jobs would come to another queue than the one named.
    only = tuple(find_stored_name(side, name) for name in only)
    pairs = (each.partition("=") for each in chosen["queues"])
    chosen["queues"] = tuple(f"{find_stored_name(side, name)}{equals}{new}" for name, equals, new in pairs)
    reading = HueyReadOptions(only, trust_pickle, local_time)
    _run_import(old, HueyRedisSource(side, reading), ImportOptions(only=only, **chosen))


def _source_redis(url: str) -> SourceRedis:
    try:
        from forebay.integrations.importers.redis_client import SourceRedis  # noqa: PLC0415 - may be missing
    except ImportError as exc:
        raise ConfigError("this needs redis: pip install 'forebay[redis]'") from exc
    return SourceRedis(url)


class ImportOptions(NamedTuple):
    """What all three commands are told."""

    new: str | None
    app: str | None
    only: tuple[str, ...]
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    dry_run: bool
    workers_stopped: bool
    as_json: bool


def _run_import(old: str, source: Source, options: ImportOptions) -> None:
    from forebay.integrations.importers.importer import Importer  # noqa: PLC0415 - `--help` stays quick  # noqa: PLC0415 - only this command needs it

    if options.new is None and options.app is None:
        raise ConfigError("say where to: --to URL, or --app MODULE:APP for the store of an app")
    names = _build_name_mapping(options.queues, options.tasks)
    flags = {"url": options.new} if options.new else {"app": options.app}
    settings = read_settings(flags, config=click.get_current_context().find_root().obj)
    app = None if options.app is None else load_app(options.app)
    registry = None if app is None else app.registry
    place = redact_url(old)
    with closing(source), open_session(settings, create=not options.dry_run) as desk:
        if app is not None:
            _check_keys(app.engine, desk.engine)
        if not options.workers_stopped and not options.dry_run:
            _check_workers_stopped(source, place)
        with _progress_bar() as tell:
            importer = Importer(
                source, desk.store, desk.reader, names=names, registry=registry, report_progress=tell
            )
            done = importer.preview() if options.dry_run else importer.run()
        _print_report(
            ImportReport(options, place, desk.name, done, () if app is None else tuple(app.queues()))
        )
    if done.left or not (options.dry_run or done.agrees):
        click.get_current_context().exit(1)


def _check_keys(of_app: Engine, to: Engine) -> None:
    from forebay.payload.store_wrapper import encrypts  # noqa: PLC0415 - most apps have no keys  # noqa: PLC0415 - only this command needs it

    if encrypts(of_app) and not encrypts(to):
        raise ConfigError(
            "the app encrypts its jobs, and --to names a store without its keys: leave --to out, which "
            "takes the store of the app, or set FOREBAY_ENCRYPTION_KEYS"
        )


def _check_workers_stopped(source: Source, url: str) -> None:
    busy = source.busy()
    if busy:
        raise IllegalTransition(
            f"{url} has {busy}; stop them first, else a job could run there and here. If they are stopped, "
            "or are something else, say --workers-stopped"
        )


def _build_name_mapping(queues: Sequence[str], tasks: Sequence[str]) -> NameMapping:
    from forebay.integrations.importers.importer import NameMapping  # noqa: PLC0415 - as above  # noqa: PLC0415 - only this command needs it

    return NameMapping(
        _parse_pairs("--queue", queues, check_queue_name), _parse_pairs("--task-map", tasks, check_task_name)
    )


def _parse_pairs(option: str, given: Sequence[str], check: Callable[[str], None]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        old, equals, new = each.partition("=")
        if not equals or not old or not new:
            raise ConfigError(f"{option} {each!r:.80} should be OLD=NEW")
        check(new)
        pairs[old] = new
    return pairs


@contextmanager
def _progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """One bar, for the first pass: later ones bring what came meanwhile."""
    with ExitStack() as stack:
        shown: list[Callable[[int], None]] = []

        def tell(label: str, done: int, total: int) -> None:
            if not shown:
                shown.append(stack.enter_context(progress_bar(label, total)))
            shown[0](done)

        yield tell


class ImportReport(NamedTuple):
    """What is answered: what was asked for, what became of it, and the queues that a worker of the app serves
    unless it is told others."""

    options: ImportOptions
    source: str
    store: str
    result: ImportResult
    served: tuple[str, ...]

    @property
    def unserved(self) -> list[str]:
        """Queues that got jobs and that no task of the app names."""
        return [] if self.options.app is None else sorted({*self.result.queues} - {*self.served})

    @property
    def unmatched(self) -> list[str]:
        """Words of the command that fit nothing that was found: they may be mistyped."""
        return [
            f"{option} {word}"
            for option, words, found in (
                ("--only", self.options.only, self.result.old_queues),
                ("--queue", self.options.queues, self.result.old_queues),
                ("--task-map", self.options.tasks, self.result.old_tasks),
            )
            for word in words
            if word.partition("=")[0] not in found
        ]


def _print_report(report: ImportReport) -> None:
    done, is_dry = report.result, report.options.dry_run

    def people() -> None:
        verb = "would be imported" if is_dry else "imported"
        click.echo(text(f"{format_job_count(done.stored)} {verb} from {report.source} to {report.store}"))
        if done.already:
            click.echo(f"{format_job_count(done.already)} had been stored by an earlier import")
        if done.queues:
            print_table(("queue", "jobs"), list(done.queues.items()))
            print_table(("task", "jobs"), list(done.tasks.items()))
        _print_warnings(done, knows_tasks=report.options.app is not None)
        if done.left:
            _print_skipped(done, is_dry=is_dry)
        if not is_dry:
            verified = "as many as were left" if done.remaining == len(done.left) else "not what was left"
            click.echo(f"{format_job_count(done.remaining)} in the old place now: {verified}")
        if report.unmatched:
            click.echo(text(f"Nothing was found for {', '.join(report.unmatched)}: is it mistyped?"))
        if report.unserved:
            _print_unserved(report)

    answer = {
        "from": report.source,
        "to": report.store,
        "dry_run": is_dry,
        **msgspec.to_builtins(done),
        "agrees": done.agrees,
        "unserved_queues": report.unserved,
        "unmatched": report.unmatched,
    }
    Output(as_json=report.options.as_json).print_result(answer, people)


def _print_unserved(report: ImportReport) -> None:
    queues = ",".join([*report.served, *report.unserved])
    click.echo(
        text(
            f"No task of the app names the queue {', '.join(report.unserved)}; a worker has to be told: "
            f"forebay worker {report.options.app} --queues {queues}"
        )
    )


def _print_warnings(result: ImportResult, *, knows_tasks: bool) -> None:
    for what, count in result.dropped.items():
        click.echo(text(f"Not carried over, of {format_job_count(count)}: {what}"))
    for job_id in result.contested:
        click.echo(text(f"Job {job_id} was gone when it was to be taken out: it may have run there too"))
    if knows_tasks and result.unknown_tasks:
        click.echo(
            text(f"The app has no task {', '.join(result.unknown_tasks)}: their jobs wait until it has")
        )


def _print_skipped(result: ImportResult, *, is_dry: bool) -> None:
    reasons = Counter(left.reason for left in result.left)
    verb = "would stay" if is_dry else "stays" if len(result.left) == 1 else "stay"
    title = f"{format_job_count(len(result.left))} {verb} in the old place"
    print_table(("jobs", "why"), [(count, reason) for reason, count in reasons.most_common()], title=title)
    rows = [(left.id, left.queue, left.task, left.reason) for left in result.left[:_MAX_SHOWN]]
    print_table(("id", "queue", "task", "why"), rows)
    if len(result.left) > _MAX_SHOWN:
        click.echo(f"and {format_job_count(len(result.left) - _MAX_SHOWN)} more; --json names all")
