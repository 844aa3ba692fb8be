"""`forebay doctor`: find problems of settings, app and store, and their remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

import click

from forebay.app.app import Forebay
from forebay.cli.app_loader import load_app
from forebay.cli.commands.stuck_jobs import HOUR_MS, find_running_longer
from forebay.cli.doctor.checks import (
    DEAD,
    DO_NOT_START,
    RUNS_ON,
    CheckResult,
    check_schedules,
    check_stalled_queues,
    check_timeouts,
    check_unattempted,
    check_workers,
)
from forebay.cli.errors import ExitStatus, status_of
from forebay.cli.options import url_options
from forebay.cli.output import Output, format_duration, format_job_count, text
from forebay.cli.redaction import redact
from forebay.cli.settings import Settings, read_settings, unknown_variables
from forebay.cli.store_session import StoreSession, open_session
from forebay.domain.fairness import is_fairness_lane
from forebay.domain.job_states import WAITING
from forebay.domain.lane import is_limit_lane
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts, LaneCount
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from forebay.errors import ConfigError, Forbidden, SchemaNewer, SchemaOutdated, StoreError, Unauthenticated
from forebay.payload.masking import MASK, is_secret
from forebay.stores.factory import open_engine
from forebay.stores.url_redaction import redact_url

_SIGNS: Final = {"ok": "ok      ", "note": "note    ", "problem": "PROBLEM "}
# Problems of the store with a better remedy than a backup, by the end of their message.
_REMEDIES: Final = {
    "was due and has not been moved": "workers promote due jobs in batches, so let one run and check again "
    "in a minute; jobs that stay can be cancelled and enqueued again",
    "in no order": "stop all workers, make a copy, and rebuild the indexes of SQLite with REINDEX",
}
_PROBLEMS_SHOWN: Final = 20
# Headings about a store that cannot be read; the first match counts.
_PAGES: Final = (
    (Unauthenticated, "401-and-403"),
    ((SchemaOutdated, SchemaNewer), "the-schema-is-too-old-or-too-new"),
    (StoreError, "the-store-does-not-answer"),
)


@click.command()
@click.option("--quick", is_flag=True, help="Skip the consistency check of the whole store.")
@url_options
def doctor(url: str | None, app: str | None, as_json: bool, quick: bool) -> None:
    """Find problems, and say what to do about them.

    Checks settings, store, schema, permissions, workers, queues without workers, and stuck jobs. The exit
    status is 1 if there is a problem, 2 for wrong settings and 3 if the store cannot be used.
    """
    config = click.get_current_context().find_root().obj
    settings = read_settings({"url": url, "app": app}, config=config)
    findings, status = run_checks(settings, quick=quick)
    out = Output(as_json=as_json)
    answer: dict[str, Any] = {
        "is_well": status is ExitStatus.DONE,
        "findings": [
            {**asdict(finding), "message": redact(finding.message), "see": finding.page}
            for finding in findings
        ],
    }
    out.print_result(answer, lambda: _show(findings))
    if status is not ExitStatus.DONE:
        click.get_current_context().exit(status)


def _show(results: list[CheckResult]) -> None:
    for finding in results:
        click.echo(f"{_SIGNS[finding.level]} {finding.about}: {text(finding.message)}")
        if finding.todo:
            click.echo(f"          → {text(finding.todo)}")
        if finding.see:
            click.echo(f"            {finding.page}")
    problems = sum(finding.level == "problem" for finding in results)
    click.echo(
        f"\n{problems} problem{'' if problems == 1 else 's'} found" if problems else "\nNo problems found."
    )


def run_checks(settings: Settings, *, quick: bool) -> tuple[list[CheckResult], ExitStatus]:
    """Run all checks that can run; return their results and the exit status."""
    findings = list(check_settings(settings))
    try:
        findings += check_app(settings)
        with open_session(settings) as session:
            findings += check_store(session, quick=quick)
    except (StoreError, ConfigError, Unauthenticated) as exc:
        see = next((see for kind, see in _PAGES if isinstance(exc, kind)), "")
        findings.append(CheckResult(about="store", message=str(exc), level="problem", see=see))
        return findings, status_of(exc)
    is_well = all(finding.level != "problem" for finding in findings)
    return findings, ExitStatus.DONE if is_well else ExitStatus.BAD_ANSWER


def check_settings(settings: Settings) -> Iterator[CheckResult]:
    """Report the settings and their sources."""
    for name, setting in settings.found.items():
        yield CheckResult(
            about="settings", message=f"{name} = {_redact_setting(name, setting.value)} by {setting.source}"
        )
    if not settings.found:
        yield CheckResult(about="settings", message="nothing is set; the defaults apply")
    for name in unknown_variables():
        yield CheckResult(
            about="settings",
            message=f"{name} is set in the environment and is not a setting",
            level="note",
            todo="see docs/reference/settings.md for the names",
        )


def _redact_setting(name: str, value: object) -> object:
    if is_secret(name):
        return MASK
    return redact_url(str(value)) if name == "url" else value


def check_app(settings: Settings) -> Iterator[CheckResult]:
    """Check that the app can be imported; report its tasks and queues."""
    named = settings.get("app")
    if named is not None:
        app = load_app(named)
        tasks = {app.registry[name].name for name in app.registry}  # a task can have several names
        yield CheckResult(about="app", message=f"{named} has {len(tasks)} tasks on {', '.join(app.queues())}")
        yield from check_app_store(settings, app)


def check_app_store(settings: Settings, app: Forebay) -> Iterator[CheckResult]:
    """Check that commands use the store of the app; a worker ignores the setting `url`."""
    kind, url = settings.store
    if kind == "url" and open_engine(url).location != app.engine.location:
        named = settings.get("app")
        yield CheckResult(
            about="store",
            message=f"url is {redact_url(url)} by {settings.found['url'].source}, and {named} uses "
            "another store",
            level="problem",
            todo=f"leave out url, so that commands use the store of {named}",
            see=DO_NOT_START,
        )


def check_store(session: StoreSession, *, quick: bool) -> Iterator[CheckResult]:
    """Check the store and its contents."""
    if session.engine.features.runs_maintenance:
        yield CheckResult(
            about="store", message=f"{session.name} answers; it is a service, which maintains its store"
        )
    else:
        yield from check_engine(session)
    try:
        yield from check_contents(session, quick=quick)
    except Forbidden as exc:
        yield CheckResult(
            about="key",
            message=str(exc),
            level="note",
            todo="use a key that has the role view for all queues",
            see="401-and-403",
        )


def check_engine(session: StoreSession) -> Iterator[CheckResult]:
    """Check the schema and the permission to write."""
    schema = session.store.migrate()
    engine = session.engine.features.name
    # The URL may come from an app, or be relative to this folder; the full location identifies the store.
    name = (
        session.name
        if session.engine.location in session.name
        else f"{session.name} ({session.engine.location})"
    )
    yield CheckResult(about="store", message=f"{name} answers; engine {engine}, schema {schema}")
    # A real write that nothing reads: an empty transaction would succeed on a full disk.
    session.store.acquire_maintenance("doctor", 0)
    yield CheckResult(about="permissions", message="this user may write")


def check_contents(session: StoreSession, *, quick: bool) -> Iterator[CheckResult]:
    """Check the contents of the store."""
    if not quick:
        yield from check_consistency(session.reader.health().problems)
    now, workers = session.reader.now(), session.reader.workers()
    alive = [worker for worker in workers if worker.heartbeat_status(now) is not HeartbeatStatus.DEAD]
    yield from check_workers(workers, now)
    counts = session.reader.counts()
    queues = session.reader.queues(list(counts)) if counts else []
    for queue in queues:
        yield from check_queue(queue, counts[queue.name], alive, session.settings.get("app"))
    yield from check_lanes(session.reader.lanes())
    yield from check_running(session, now)
    inactive = (QueueState.PAUSED, QueueState.DROPPED)
    active = {queue.name: counts[queue.name] for queue in queues if queue.state not in inactive}
    yield from check_stalled_queues(session.reader, alive, active, now)
    yield from check_timeouts(session.reader, now)
    yield from check_schedules(session.reader, now)
    yield from check_unattempted(session.reader)
    dead = sum(count.dead for count in counts.values())
    if dead:
        yield CheckResult(
            about="dead letters",
            message=f"{format_job_count(dead)} will not be retried",
            level="note",
            todo="forebay dead list; then forebay dead revive or forebay dead purge",
            see=DEAD,
        )


def check_consistency(problems: Iterable[str]) -> Iterator[CheckResult]:
    """Report the problems that the consistency check of the store found."""
    found = list(problems)
    if not found:
        yield CheckResult(about="consistency", message="jobs, leases, keys and counts agree")
    for problem in found[:_PROBLEMS_SHOWN]:
        yield CheckResult(about="consistency", message=problem, level="problem", todo=_remedy(problem))
    if found[_PROBLEMS_SHOWN:]:
        more = len(found) - _PROBLEMS_SHOWN
        yield CheckResult(about="consistency", message=f"and {more:,} more of this kind", level="problem")


def _remedy(problem: str) -> str:
    matching = (remedy for end, remedy in _REMEDIES.items() if problem.endswith(end))
    return next(matching, "restore the store from a backup")


def check_queue(
    queue: Queue, counts: Counts, alive: list[WorkerInfo], app: str | None
) -> Iterator[CheckResult]:
    """Check that the waiting jobs of a queue have a worker."""
    waiting = sum(getattr(counts, state) for state in WAITING)
    if not waiting:
        return
    about, wait = f"queue {queue.name}", f"{format_job_count(waiting)} {'waits' if waiting == 1 else 'wait'}"
    if queue.state is QueueState.PAUSED:
        yield CheckResult(
            about=about,
            message=f"it is paused, and {wait}",
            level="note",
            todo=f"forebay queues resume {queue.name}",
            see=DO_NOT_START,
        )
    elif queue.state is QueueState.DROPPED:
        yield CheckResult(
            about=about,
            message=f"it was deleted, and {wait}; the sweep moves them to the dead letters",
            level="note",
        )
    elif not any(queue.name in worker.queues for worker in alive):
        yield CheckResult(
            about=about,
            message=f"{wait}, and no worker works on it",
            level="problem",
            todo=f"forebay worker {app or 'package.module:app'} --queues {queue.name}",
            see=DO_NOT_START,
        )


def check_lanes(lanes: Iterable[LaneCount]) -> Iterator[CheckResult]:
    """Check for parked jobs: no worker of their queue could run them."""
    for lane in lanes:
        if is_fairness_lane(lane.lane) or is_limit_lane(lane.lane):
            continue  # these jobs wait for their fairness key or for a limit, as intended
        needed, todo = _lane_requirement(lane.lane)
        wait = "waits" if lane.jobs == 1 else "wait"
        yield CheckResult(
            about=f"queue {lane.queue}",
            message=f"{format_job_count(lane.jobs)} {wait} for a worker that {needed}",
            level="problem",
            todo=f"{todo}; or cancel the jobs",
            see=DO_NOT_START,
        )


def _lane_requirement(lane: str) -> tuple[str, str]:
    """Return what a worker needs to run the jobs of a lane, and the remedy."""
    kind, _, name = lane.partition(":")
    if kind == "task":
        return (
            f"has the task {name}",
            f"start a worker whose app has it; if the function was renamed, give its task aliases=[{name!r}]",
        )
    if kind == "payload":
        return f"reads payloads of version {name}", "upgrade the workers of this queue"
    if name == "blobs":
        return (
            "has the blob store",
            "start workers with blob_store=, and check that they can reach it",
        )
    return f"has the {name}", "start workers with it in encryption_keys="


def check_running(session: StoreSession, now: int) -> Iterator[CheckResult]:
    """Check for jobs that have been running for more than an hour."""
    stuck = find_running_longer(session.reader, now, HOUR_MS)
    if stuck:
        longest = stuck[0]
        since = format_duration(now - (longest.started_at or now))
        yield CheckResult(
            about="running",
            message=f"{format_job_count(len(stuck))} for over an hour; {longest.id} "
            f"({longest.task}) for {since}",
            level="problem",
            todo=f"forebay stuck; then forebay jobs cancel {longest.id}",
            see=RUNS_ON,
        )
