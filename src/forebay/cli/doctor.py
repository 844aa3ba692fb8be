"""`forebay doctor`: look for what is wrong, and say what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

import click

from forebay.app.app import Forebay
from forebay.app.masking import MASK, is_secret
from forebay.cli.failing import Status, status_of
from forebay.cli.loading import load_app
from forebay.cli.opening import Desk, opened
from forebay.cli.options import url_options
from forebay.cli.output import Output, jobs_of, length, text
from forebay.cli.redacting import redacted
from forebay.cli.settings import Settings, read_settings, unknown_variables
from forebay.cli.stats import HOUR_MS, running_longer
from forebay.cli.symptoms import (
    DEAD,
    DO_NOT_START,
    RUNS_ON,
    Finding,
    of_overrun,
    of_pools,
    of_schedules,
    of_unrun,
    of_workers,
)
from forebay.domain.gate import is_limit_gate
from forebay.domain.lifecycle import WAITING
from forebay.domain.query import Counts, HeldJobs
from forebay.domain.queue import Queue, QueueState
from forebay.domain.share import is_fair_gate
from forebay.domain.worker import Pulse, WorkerInfo
from forebay.errors import ConfigError, Forbidden, SchemaNewer, SchemaOutdated, StoreError, Unauthenticated
from forebay.stores.opening import open_engine, without_password

_SIGNS: Final = {"ok": "ok      ", "note": "note    ", "problem": "PROBLEM "}
# Troubles of the store that have a better end than a backup, by how their sentences end.
_MENDS: Final = {
    "was due and has not been moved": "workers move what came due in batches, so let one run and look again "
    "in a minute; what stays can be cancelled and enqueued again",
    "in no order": "stop all workers, keep a copy, and let SQLite build its indexes again with REINDEX",
}
_PROBLEMS_SHOWN: Final = 20
# Where more is told about a store that cannot be looked at; the first that fits counts.
_PAGES: Final = (
    (Unauthenticated, "401-and-403"),
    ((SchemaOutdated, SchemaNewer), "the-schema-is-too-old-or-too-new"),
    (StoreError, "the-store-does-not-answer"),
)


@click.command()
@click.option("--quick", is_flag=True, help="Do not read the whole store for damage.")
@url_options
def doctor(url: str | None, app: str | None, as_json: bool, quick: bool) -> None:
    """Look for what is wrong, and say what to do about it.

    Settings, store, schema, permissions, workers, queues that nobody works on, jobs that are stuck. The
    status is 1 if there is a problem, 2 for wrong settings and 3 if the store cannot be used.
    """
    config = click.get_current_context().find_root().obj
    settings = read_settings({"url": url, "app": app}, config=config)
    findings, status = examined(settings, quick=quick)
    out = Output(as_json=as_json)
    answer: dict[str, Any] = {
        "is_well": status is Status.DONE,
        "findings": [
            {**asdict(finding), "message": redacted(finding.message), "see": finding.page}
            for finding in findings
        ],
    }
    out.answer(answer, lambda: _show(findings))
    if status is not Status.DONE:
        click.get_current_context().exit(status)


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        click.echo(f"{_SIGNS[finding.level]} {finding.about}: {text(finding.message)}")
        if finding.todo:
            click.echo(f"          → {text(finding.todo)}")
        if finding.see:
            click.echo(f"            {finding.page}")
    problems = sum(finding.level == "problem" for finding in findings)
    click.echo(f"\n{problems} problem{'' if problems == 1 else 's'} found" if problems else "\nAll is well.")


def examined(settings: Settings, *, quick: bool) -> tuple[list[Finding], Status]:
    """All findings, as far as they can be had, and what they come to."""
    findings = list(of_settings(settings))
    try:
        findings += of_app(settings)
        with opened(settings) as desk:
            findings += of_store(desk, quick=quick)
    except (StoreError, ConfigError, Unauthenticated) as exc:
        see = next((see for kind, see in _PAGES if isinstance(exc, kind)), "")
        findings.append(Finding(about="store", message=str(exc), level="problem", see=see))
        return findings, status_of(exc)
    is_well = all(finding.level != "problem" for finding in findings)
    return findings, Status.DONE if is_well else Status.BAD_ANSWER


def of_settings(settings: Settings) -> Iterator[Finding]:
    """What is set, and where."""
    for name, setting in settings.found.items():
        yield Finding(about="settings", message=f"{name} = {_shown(name, setting.value)} by {setting.source}")
    if not settings.found:
        yield Finding(about="settings", message="nothing is set; the defaults hold")
    for name in unknown_variables():
        yield Finding(
            about="settings",
            message=f"{name} is set in the environment and is no setting",
            level="note",
            todo="see docs/reference/settings.md for the names",
        )


def _shown(name: str, value: object) -> object:
    if is_secret(name):
        return MASK
    return without_password(str(value)) if name == "url" else value


def of_app(settings: Settings) -> Iterator[Finding]:
    """Whether the app can be imported, and what it has."""
    named = settings.get("app")
    if named is not None:
        app = load_app(named)
        tasks = {app.registry[name].name for name in app.registry}  # some go by several names
        yield Finding(about="app", message=f"{named} has {len(tasks)} tasks on {', '.join(app.queues())}")
        yield from of_both(settings, app)


def of_both(settings: Settings, app: Forebay) -> Iterator[Finding]:
    """Whether commands look where the workers of the app work; a worker knows nothing of `url`."""
    kind, url = settings.store
    if kind == "url" and open_engine(url).place != app.engine.place:
        named = settings.get("app")
        yield Finding(
            about="store",
            message=f"url is {without_password(url)} by {settings.found['url'].source}, and {named} works on "
            "another store",
            level="problem",
            todo=f"leave out url, so that commands look where the workers of {named} work",
            see=DO_NOT_START,
        )


def of_store(desk: Desk, *, quick: bool) -> Iterator[Finding]:
    """Everything that is learned from the store itself."""
    if desk.engine.features.does_duties:
        yield Finding(about="store", message=f"{desk.name} answers; it is a service, which keeps its store")
    else:
        yield from of_engine(desk)
    try:
        yield from of_contents(desk, quick=quick)
    except Forbidden as exc:
        yield Finding(
            about="key",
            message=str(exc),
            level="note",
            todo="look with a key that has the role view for all queues",
            see="401-and-403",
        )


def of_engine(desk: Desk) -> Iterator[Finding]:
    """Whether the store can be used as it is."""
    schema = desk.store.migrate()
    engine = desk.engine.features.name
    # The address may be an app's, or relative to this folder: the whole one tells which store that is.
    name = desk.name if desk.engine.place in desk.name else f"{desk.name} ({desk.engine.place})"
    yield Finding(about="store", message=f"{name} answers; engine {engine}, schema {schema}")
    # A real write, though nobody reads it: an empty one would find room on a full disk.
    desk.store.take_duty("doctor", 0)
    yield Finding(about="permissions", message="this user may write")


def of_contents(desk: Desk, *, quick: bool) -> Iterator[Finding]:
    """What is wrong with what the store holds."""
    if not quick:
        yield from of_health(desk.reader.health().problems)
    now, workers = desk.reader.now(), desk.reader.workers()
    alive = [worker for worker in workers if worker.pulse(now) is not Pulse.DEAD]
    yield from of_workers(workers, now)
    counts = desk.reader.counts()
    queues = desk.reader.queues(list(counts)) if counts else []
    for queue in queues:
        yield from of_queue(queue, counts[queue.name], alive, desk.settings.get("app"))
    yield from of_held(desk.reader.held())
    yield from of_running(desk, now)
    resting = (QueueState.PAUSED, QueueState.DROPPED)
    giving = {one.name: counts[one.name] for one in queues if one.state not in resting}
    yield from of_pools(desk.reader, alive, giving, now)
    yield from of_overrun(desk.reader, now)
    yield from of_schedules(desk.reader, now)
    yield from of_unrun(desk.reader)
    dead = sum(one.dead for one in counts.values())
    if dead:
        yield Finding(
            about="dead letters",
            message=f"{jobs_of(dead)} will not be tried again",
            level="note",
            todo="forebay dead list; then forebay dead revive or forebay dead purge",
            see=DEAD,
        )


def of_health(problems: Iterable[str]) -> Iterator[Finding]:
    """What the store's own look at itself found."""
    found = list(problems)
    if not found:
        yield Finding(about="consistency", message="jobs, leases, keys and counts agree")
    for problem in found[:_PROBLEMS_SHOWN]:
        yield Finding(about="consistency", message=problem, level="problem", todo=_mend(problem))
    if found[_PROBLEMS_SHOWN:]:
        more = len(found) - _PROBLEMS_SHOWN
        yield Finding(about="consistency", message=f"and {more:,} more of this kind", level="problem")


def _mend(problem: str) -> str:
    fitting = (todo for end, todo in _MENDS.items() if problem.endswith(end))
    return next(fitting, "restore the store from a backup")


def of_queue(queue: Queue, counts: Counts, alive: list[WorkerInfo], app: str | None) -> Iterator[Finding]:
    """Whether the jobs that wait in a queue will be run by anybody."""
    waiting = sum(getattr(counts, state) for state in WAITING)
    if not waiting:
        return
    about, wait = f"queue {queue.name}", f"{jobs_of(waiting)} {'waits' if waiting == 1 else 'wait'}"
    if queue.state is QueueState.PAUSED:
        yield Finding(
            about=about,
            message=f"it is paused, and {wait}",
            level="note",
            todo=f"forebay queues resume {queue.name}",
            see=DO_NOT_START,
        )
    elif queue.state is QueueState.DROPPED:
        yield Finding(
            about=about,
            message=f"it was deleted, and {wait}; the sweep moves them to the dead letters",
            level="note",
        )
    elif not any(queue.name in worker.queues for worker in alive):
        yield Finding(
            about=about,
            message=f"{wait}, and no worker works on it",
            level="problem",
            todo=f"forebay worker {app or 'package.module:app'} --queues {queue.name}",
            see=DO_NOT_START,
        )


def of_held(held: Iterable[HeldJobs]) -> Iterator[Finding]:
    """Jobs that wait beside their queue's order, because a worker of their queue could not run them."""
    for gate in held:
        if is_fair_gate(gate.gate) or is_limit_gate(gate.gate):
            continue  # they wait for the turn of their share, or for room under a limit, as they should
        needed, todo = _passing(gate.gate)
        wait = "waits" if gate.jobs == 1 else "wait"
        yield Finding(
            about=f"queue {gate.queue}",
            message=f"{jobs_of(gate.jobs)} {wait} for a worker that {needed}",
            level="problem",
            todo=f"{todo}; or cancel the jobs",
            see=DO_NOT_START,
        )


def _passing(gate: str) -> tuple[str, str]:
    """What a worker needs to run jobs behind a gate, and what to do about it."""
    kind, _, name = gate.partition(":")
    if kind == "task":
        return (
            f"has the task {name}",
            f"start a worker whose app has it; if the function was renamed, give its task aliases=[{name!r}]",
        )
    if kind == "payload":
        return f"reads payloads of version {name}", "upgrade the workers of this queue"
    if name == "blobs":
        return "has the blobs", "start workers with blobs=, and check that their place can be reached"
    return f"has the {name}", "start workers with it in encryption_keys="


def of_running(desk: Desk, now: int) -> Iterator[Finding]:
    """Jobs that have been running for longer than an hour."""
    stuck = running_longer(desk.reader, now, HOUR_MS)
    if stuck:
        longest = stuck[0]
        since = length(now - (longest.started_at or now))
        yield Finding(
            about="running",
            message=f"{jobs_of(len(stuck))} for over an hour; {longest.id} ({longest.task}) for {since}",
            level="problem",
            todo=f"forebay stuck; then forebay jobs cancel {longest.id}",
            see=RUNS_ON,
        )
