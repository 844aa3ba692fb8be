"""`forebay import`: import waiting jobs from Celery, RQ or Huey."""

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
from forebay.domain.job_validation import check_queue_name, check_task_name
from forebay.errors import ConfigError, IllegalTransition
from forebay.stores.url_redaction import redact_url

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
    """Import waiting jobs from Celery, RQ or Huey.

    Stop the workers of the old queue first. Each job is stored here before it is removed there. Repeat an
    interrupted import with the same options; it creates no job twice. Jobs that cannot be imported are
    reported and stay where they are; then the exit status is 1.
    """


def _with_import_options(func: Command) -> Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs."),
        click.option(
            "--workers-stopped", is_flag=True, help="Do not check whether workers of the old queue run."
        ),
        click.option("--dry-run", is_flag=True, help="Report what would be imported, and change nothing."),
        click.option("--task-map", "tasks", metavar="OLD=NEW", multiple=True, help="New name of a task."),
        click.option(
            "--only", metavar="QUEUE", multiple=True, help="Import only this queue; may be repeated."
        ),
        click.option("--queue", "queues", metavar="OLD=NEW", multiple=True, help="New name of a queue."),
        click.option(
            "--app", metavar="MODULE:APP", help="Take retries and time limits from the tasks of this app."
        ),
        click.option("--to", "new", metavar="URL", help="The store; default: that of the app."),
        click.option("--from", "old", metavar="URL", required=True, help="The URL of the old queue."),
    ):
        func = option(func)
    return func


def _with_pickle_option(func: Command) -> Command:
    return click.option(
        "--trust-pickle",
        is_flag=True,
        help="Read pickles of plain data. Every writer to the old queue controls their content.",
    )(func)


@import_jobs.command()
@_with_import_options
@click.option("--prefix", default="", metavar="TEXT", help="The global_keyprefix of the broker.")
def celery(old: str, prefix: str, only: tuple[str, ...], **chosen: Any) -> None:
    """Import tasks of Celery from a Redis broker.

    Waiting tasks, tasks with an eta or a countdown, and tasks of workers that died. They must be serialised
    as JSON, which is Celery's default.
    """
    redis_client = _source_redis(old)
    from forebay.integrations.importers.celery_source import CelerySource  # noqa: PLC0415 - it needs redis  # noqa: PLC0415 - only this command needs it

    _run_import(old, CelerySource(redis_client, only=only, prefix=prefix), ImportOptions(only=only, **chosen))


@import_jobs.command()
@_with_import_options
@_with_pickle_option
def rq(old: str, only: tuple[str, ...], trust_pickle: bool, **chosen: Any) -> None:
    """Import jobs of RQ: queued, scheduled and deferred."""
    redis_client = _source_redis(old)
    from forebay.integrations.importers.rq_source import RqSource  # noqa: PLC0415 - it needs redis  # noqa: PLC0415 - only this command needs it

    _run_import(
        old, RqSource(redis_client, only=only, trust_pickle=trust_pickle), ImportOptions(only=only, **chosen)
    )


@import_jobs.command()
@_with_import_options
@_with_pickle_option
@click.option("--local-time", is_flag=True, help="Huey was created with utc=False: its times are local.")
def huey(old: str, only: tuple[str, ...], trust_pickle: bool, local_time: bool, **chosen: Any) -> None:
    """Import tasks of Huey from Redis, or from a file: --from sqlite:///huey.db.

    Waiting and scheduled tasks.
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
    redis_client = _source_redis(old)
    from forebay.integrations.importers.huey_redis_source import HueyRedisSource, find_stored_name  # noqa: PLC0415 - only this command needs it

    # Before the import: under another spelling the jobs would reach another queue than the one named.
    only = tuple(find_stored_name(redis_client, name) for name in only)
    pairs = (each.partition("=") for each in chosen["queues"])
    chosen["queues"] = tuple(
        f"{find_stored_name(redis_client, name)}{equals}{new}" for name, equals, new in pairs
    )
    reading = HueyReadOptions(only, trust_pickle, local_time)
    _run_import(old, HueyRedisSource(redis_client, reading), ImportOptions(only=only, **chosen))


def _source_redis(url: str) -> SourceRedis:
    try:
        from forebay.integrations.importers.redis_client import SourceRedis  # noqa: PLC0415 - may be missing
    except ImportError as exc:
        raise ConfigError("this needs redis: pip install 'forebay[redis]'") from exc
    return SourceRedis(url)


class ImportOptions(NamedTuple):
    """Options of all three commands."""

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
        raise ConfigError("name the target: --to URL, or --app MODULE:APP for the store of an app")
    names = _build_name_mapping(options.queues, options.tasks)
    flags = {"url": options.new} if options.new else {"app": options.app}
    settings = read_settings(flags, config=click.get_current_context().find_root().obj)
    app = None if options.app is None else load_app(options.app)
    registry = None if app is None else app.registry
    source_url = redact_url(old)
    with closing(source), open_session(settings, create=not options.dry_run) as session:
        if app is not None:
            _check_keys(app.engine, session.engine)
        if not options.workers_stopped and not options.dry_run:
            _check_workers_stopped(source, source_url)
        with _progress_bar() as report_progress:
            importer = Importer(
                source,
                session.store,
                session.reader,
                names=names,
                registry=registry,
                report_progress=report_progress,
            )
            result = importer.preview() if options.dry_run else importer.run()
        _print_report(
            ImportReport(
                options, source_url, session.name, result, () if app is None else tuple(app.queues())
            )
        )
    if result.left or not (options.dry_run or result.agrees):
        click.get_current_context().exit(1)


def _check_keys(of_app: Engine, to: Engine) -> None:
    from forebay.payload.engine_wrapper import encrypts  # noqa: PLC0415 - most apps have no keys  # noqa: PLC0415 - only this command needs it

    if encrypts(of_app) and not encrypts(to):
        raise ConfigError(
            "the app encrypts its jobs, and --to names a store without its keys: leave out --to to use the "
            "store of the app, or set FOREBAY_ENCRYPTION_KEYS"
        )


def _check_workers_stopped(source: Source, url: str) -> None:
    busy = source.busy()
    if busy:
        raise IllegalTransition(
            f"{url} has {busy}; stop them first, else a job could run there and here. If they are stopped, "
            "or are something else, add --workers-stopped"
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
    """Show one bar, for the first pass; later passes import jobs that arrived meanwhile."""
    with ExitStack() as stack:
        shown: list[Callable[[int], None]] = []

        def report_progress(label: str, done: int, total: int) -> None:
            if not shown:
                shown.append(stack.enter_context(progress_bar(label, total)))
            shown[0](done)

        yield report_progress


class ImportReport(NamedTuple):
    """Report of an import: options, result, and the queues that a worker of the app serves by default."""

    options: ImportOptions
    source: str
    store: str
    result: ImportResult
    served: tuple[str, ...]

    @property
    def unserved(self) -> list[str]:
        """Queues that received jobs and that no task of the app names."""
        return [] if self.options.app is None else sorted({*self.result.queues} - {*self.served})

    @property
    def unmatched(self) -> list[str]:
        """Option values that matched nothing: they may be mistyped."""
        return [
            f"{option} {value}"
            for option, values, found in (
                ("--only", self.options.only, self.result.old_queues),
                ("--queue", self.options.queues, self.result.old_queues),
                ("--task-map", self.options.tasks, self.result.old_tasks),
            )
            for value in values
            if value.partition("=")[0] not in found
        ]


def _print_report(report: ImportReport) -> None:
    result, is_dry = report.result, report.options.dry_run

    def print_text() -> None:
        verb = "would be imported" if is_dry else "imported"
        click.echo(text(f"{format_job_count(result.stored)} {verb} from {report.source} to {report.store}"))
        if result.already:
            click.echo(f"{format_job_count(result.already)} had been stored by an earlier import")
        if result.queues:
            print_table(("queue", "jobs"), list(result.queues.items()))
            print_table(("task", "jobs"), list(result.tasks.items()))
        _print_warnings(result, knows_tasks=report.options.app is not None)
        if result.left:
            _print_skipped(result, is_dry=is_dry)
        if not is_dry:
            verified = (
                "as reported above" if result.remaining == len(result.left) else "not as reported above"
            )
            click.echo(f"{format_job_count(result.remaining)} in the old queue now: {verified}")
        if report.unmatched:
            click.echo(text(f"Nothing was found for {', '.join(report.unmatched)}: is it mistyped?"))
        if report.unserved:
            _print_unserved(report)

    answer = {
        "from": report.source,
        "to": report.store,
        "dry_run": is_dry,
        **msgspec.to_builtins(result),
        "agrees": result.agrees,
        "unserved_queues": report.unserved,
        "unmatched": report.unmatched,
    }
    Output(as_json=report.options.as_json).print_result(answer, print_text)


def _print_unserved(report: ImportReport) -> None:
    queues = ",".join([*report.served, *report.unserved])
    click.echo(
        text(
            f"No task of the app names the queue {', '.join(report.unserved)}; start a worker for it: "
            f"forebay worker {report.options.app} --queues {queues}"
        )
    )


def _print_warnings(result: ImportResult, *, knows_tasks: bool) -> None:
    for detail, count in result.dropped.items():
        click.echo(text(f"Not imported, of {format_job_count(count)}: {detail}"))
    for job_id in result.contested:
        click.echo(text(f"Job {job_id} was gone before it could be removed there: it may have run there too"))
    if knows_tasks and result.unknown_tasks:
        click.echo(
            text(f"The app has no task {', '.join(result.unknown_tasks)}: their jobs wait until it has them")
        )


def _print_skipped(result: ImportResult, *, is_dry: bool) -> None:
    reasons = Counter(left.reason for left in result.left)
    verb = "would stay" if is_dry else "stays" if len(result.left) == 1 else "stay"
    title = f"{format_job_count(len(result.left))} {verb} in the old queue"
    print_table(("jobs", "reason"), [(count, reason) for reason, count in reasons.most_common()], title=title)
    rows = [(left.id, left.queue, left.task, left.reason) for left in result.left[:_MAX_SHOWN]]
    print_table(("id", "queue", "task", "reason"), rows)
    if len(result.left) > _MAX_SHOWN:
        click.echo(f"and {format_job_count(len(result.left) - _MAX_SHOWN)} more; --json lists all")
