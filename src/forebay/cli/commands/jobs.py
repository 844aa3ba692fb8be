"""`forebay jobs`: list jobs and act on them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from forebay.app.job_handle import JobHandle
from forebay.cli.commands.job_tree import edges_json, load_edges, print_edges, tree
from forebay.cli.errors import ExitStatus
from forebay.cli.job_actions import ActionCounts, JobAction, JobSelection, run_action
from forebay.cli.job_filters import Filter, with_filter
from forebay.cli.json_format import (
    decode_arguments,
    decode_result_field,
    iso_instant,
    job_json,
    summary_json,
    timeline_json,
)
from forebay.cli.options import Command, DurationParam, QueueParam, limit_option, with_store, yes_option
from forebay.cli.output import (
    Output,
    format_duration,
    format_instant,
    json_line,
    print_fields,
    print_table,
    text,
)
from forebay.cli.store_session import StoreSession
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_history import Timeline
from forebay.domain.job_query import JobQuery, Page
from forebay.domain.job_states import LIVE, JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.job_validation import check_queue_name
from forebay.domain.job_views import JobSummary
from forebay.domain.progress import JobProgress
from forebay.errors import JobNotFound
from forebay.operations.bulk_actions import cancel_matching, purge, revive_matching
from forebay.operations.job_search import search_jobs
from forebay.operations.job_timeline import timeline_lines
from forebay.stores.contract.claims_and_results import ActionResult, InsertResult
from forebay.stores.contract.revive_options import ReviveOptions

DELETABLE = frozenset(JobState) - {JobState.RUNNING}
MAX_SHOWN_LOG_LINES = 20
REVIVABLE = frozenset({JobState.DEAD, JobState.CANCELLED})
# Outcome of cancelling a running job: key of the JSON document, printed words.
CANCEL_REQUESTED = ("cancel_requested", "asked to stop")
FORCE_CANCELLED = ("force_cancelled", "taken from the worker and moved to the dead letters")
ID = click.argument("job_id", metavar="ID")
IDS = click.argument("ids", metavar="[ID]...", nargs=-1)
ALL = click.option("--all", "everything", is_flag=True, help="All jobs, without conditions.")
DEPENDANTS = click.option(
    "--dependants", is_flag=True, help="Also their dependants, and jobs that ended because of them."
)
AFTER = click.option("--after", metavar="POSITION", help="Continue after an earlier list.")


@click.group()
def jobs() -> None:
    """List, show, cancel, revive, delete, search and await jobs."""


jobs.add_command(tree)


@jobs.command("list")
@AFTER
@limit_option(50)
@with_filter()
@with_store()
def list_jobs(session: StoreSession, out: Output, chosen: Filter, limit: int, after: str | None) -> None:
    """List jobs, newest first."""
    print_jobs(session, out, search_jobs(session.reader, chosen.to_query(session), limit, after))


@jobs.command()
@click.argument("search_text", metavar="TEXT")
@AFTER
@limit_option(50)
@with_filter("text")
@with_store()
def search(
    session: StoreSession, out: Output, chosen: Filter, limit: int, after: str | None, search_text: str
) -> None:
    """List jobs with TEXT in their arguments or reason."""
    if not search_text:
        raise click.UsageError("Give the text to search for.")
    wanted = Filter(given={**chosen.given, "text": search_text})
    print_jobs(session, out, search_jobs(session.reader, wanted.to_query(session), limit, after))


@jobs.command()
@ID
@with_store()
def show(session: StoreSession, out: Output, job_id: str) -> None:
    """Show a job and its history."""
    timeline = require_timeline(session, job_id)
    print_timeline(session, out, timeline, {})


@jobs.command()
@IDS
@click.option(
    "--reason", default="cancelled", show_default=True, help="The reason; it is stored with the job."
)
@click.option("--force", is_flag=True, help="Take running jobs from their workers and mark them dead.")
@DEPENDANTS
@ALL
@yes_option
@with_filter()
@with_store()
def cancel(
    session: StoreSession, out: Output, reason: str, force: bool, dependants: bool, **which: Any
) -> None:
    """Cancel waiting jobs; ask running jobs to stop."""
    choice = JobSelection(**which)
    if force and not choice.ids:
        raise click.UsageError("--force works only with ids.")
    _check_dependants(choice, dependants)
    run_action(session, out, cancel_action(session, reason, force=force, dependants=dependants), choice)


def _check_dependants(selection: JobSelection, dependants: bool) -> None:
    if dependants and not selection.ids:
        raise click.UsageError("--dependants works only with ids.")


def cancel_action(session: StoreSession, reason: str, *, force: bool, dependants: bool = False) -> JobAction:
    """Return the action that cancels waiting jobs and stops running ones."""

    def cancel_ids(ids: Sequence[JobId]) -> list[ActionResult]:
        return session.store.cancel(ids, reason, actor=session.actor, force=force, dependants=dependants)

    def cancel_all(query: JobQuery, report_progress: Callable[[int], None]) -> ActionCounts:
        counts = Counter(action.count_results([]))
        cancel_matching(
            session.store,
            session.reader,
            query,
            reason=reason,
            actor=session.actor,
            progress=report_progress,
            on_results=partial(_add_counts, action, counts),
        )
        return dict(counts)

    action = JobAction(
        verb="cancel",
        past="cancelled",
        allowed=LIVE,
        apply_to_ids=cancel_ids,
        apply_to_all=cancel_all,
        other_outcomes={JobState.RUNNING: CANCEL_REQUESTED, JobState.DEAD: FORCE_CANCELLED}
        if force
        else {JobState.RUNNING: CANCEL_REQUESTED},
    )
    return action


def _add_counts(action: JobAction, counts: Counter[str], results: Sequence[ActionResult]) -> None:
    counts.update(action.count_results(results))


def with_revive_options(func: Command) -> Command:
    """Add the options of revive: target queue, delay, failures."""
    for option in (
        click.option("--keep-failures", is_flag=True, help="Do not reset the count of failures."),
        click.option(
            "--delay", type=DurationParam(), default=0, help="Run them after this time, such as 5m."
        ),
        click.option("--to", "target", type=QueueParam(), help="Into this queue instead of their own."),
    ):
        func = option(func)
    return func


@jobs.command()
@IDS
@with_revive_options
@DEPENDANTS
@ALL
@yes_option
@with_filter()
@with_store()
def revive(
    session: StoreSession,
    out: Output,
    target: str | None,
    delay: int,
    keep_failures: bool,
    dependants: bool,
    **which: Any,
) -> None:
    """Move dead and cancelled jobs back to their queues."""
    choice = JobSelection(**which)
    _check_dependants(choice, dependants)
    action = revive_action(session, REVIVABLE, target, delay, reset=not keep_failures, dependants=dependants)
    run_action(session, out, action, choice)


def revive_action(
    session: StoreSession,
    allowed: frozenset[JobState],
    target: str | None,
    delay: int,
    *,
    reset: bool,
    dependants: bool = False,
    group: str | None = None,
) -> JobAction:
    """Return the action that revives jobs."""
    if target is not None:
        check_queue_name(target)
        session.require_queue(target)
    to = None if target is None else QueueName(target)
    options = ReviveOptions(to, delay, reset, session.actor, dependants)

    def revive_all(query: JobQuery, report_progress: Callable[[int], None]) -> ActionCounts:
        counts = Counter(action.count_results([]))
        add_counts = partial(_add_counts, action, counts)
        revive_matching(
            session.store,
            session.reader,
            query,
            group=group,
            options=options,
            progress=report_progress,
            on_results=add_counts,
        )
        return dict(counts)

    action = JobAction(
        verb="revive",
        past="revived",
        allowed=allowed,
        apply_to_ids=lambda ids: session.store.revive(ids, **options._asdict()),
        apply_to_all=revive_all,
        confirms_ids=False,  # a revived job can be cancelled again
    )
    return action


@jobs.command()
@IDS
@ALL
@yes_option
@with_filter()
@with_store()
def delete(session: StoreSession, out: Output, **which: Any) -> None:
    """Delete jobs that are not running, with their history."""
    run_action(session, out, delete_action(session, DELETABLE), JobSelection(**which))


def delete_action(session: StoreSession, allowed: frozenset[JobState], group: str | None = None) -> JobAction:
    """Return the action that deletes jobs."""

    def delete_all(query: JobQuery, report_progress: Callable[[int], None]) -> ActionCounts:
        counts = Counter(action.count_results([]))
        add_counts = partial(_add_counts, action, counts)
        purge(
            session.store,
            session.reader,
            query,
            group=group,
            actor=session.actor,
            progress=report_progress,
            on_results=add_counts,
        )
        return dict(counts)

    action = JobAction(
        verb="delete",
        past="deleted",
        allowed=allowed,
        apply_to_ids=lambda ids: session.store.delete(ids, actor=session.actor),
        apply_to_all=delete_all,
    )
    return action


@jobs.command()
@ID
@click.option("--priority", type=int, help="The new priority.")
@click.option(
    "--delay",
    type=DurationParam(),
    help="Run it after this time from now, such as 5m; 0 makes it pending now.",
)
@click.option("--to", "target", type=QueueParam(), help="Into this queue instead of its own.")
@with_store()
def update(
    session: StoreSession,
    out: Output,
    job_id: str,
    priority: int | None,
    delay: int | None,
    target: str | None,
) -> None:
    """Change the priority, time or queue of a waiting job."""
    if priority is None and delay is None and target is None:
        raise click.UsageError("Give a change: --priority, --delay or --to.")
    if target is not None:
        session.require_queue(target)
    to = None if target is None else QueueName(target)
    change = JobUpdate(priority=priority, delay_ms=delay, queue=to)
    result = session.store.update_job(JobId(job_id), change, actor=session.actor)
    result.check()
    out.print_message(
        {"id": job_id, "updated": True, "state": result.state},
        f"job {job_id} updated; it is {result.state}",
    )


@jobs.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", type=DurationParam(), help="Give up after this time, such as 30s; default: never.")
@with_store()
def wait(session: StoreSession, out: Output, ids: tuple[str, ...], timeout: int | None) -> None:
    """Wait until jobs have ended, and show their results.

    The exit status is 0 if all completed, 1 if one is dead or cancelled, 6 after the timeout.
    """
    ends = None if timeout is None else time.monotonic() + timeout / 1_000
    ended = [_wait_for_job(session, job_id, ends) for job_id in dict.fromkeys(ids)]
    out.print_result([job_json(job) for job in ended], lambda: _print_results(ended))
    if any(job.state is not JobState.COMPLETED for job in ended):
        click.get_current_context().exit(ExitStatus.BAD_ANSWER)


def _wait_for_job(session: StoreSession, job_id: str, deadline: float | None) -> Job:
    handle = JobHandle[Any](session.client, InsertResult(id=JobId(job_id), is_new=False))
    return handle.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))


def _print_results(jobs_done: Sequence[Job]) -> None:
    rows = [
        (job.id, job.task, job.state, job.reason or _format_json(decode_result_field(job.result)["result"]))
        for job in jobs_done
    ]
    print_table(("id", "task", "state", "result"), rows)


def _format_json(value: Any) -> str:
    """Return a value as JSON; the empty text for None."""
    return "" if value is None else json_line(value)


def require_timeline(session: StoreSession, job_id: str) -> Timeline:
    """Return the history of a job; raise JobNotFound if there is no such job."""
    timeline = session.reader.history(JobId(job_id))
    if timeline is None:
        raise JobNotFound(f"there is no job {job_id}; it may have been pruned")
    return timeline


def print_jobs(session: StoreSession, out: Output, page: Page, **more: Any) -> None:
    """Print a page of jobs, and how to continue."""
    now = session.reader.now()
    answer = {"jobs": [summary_json(job) for job in page.jobs], "after": page.after, **more}
    if page.scanned_back_to is not None:
        answer["scanned_back_to"] = iso_instant(page.scanned_back_to)

    def print_text() -> None:
        print_table(
            ("id", "queue", "task", "state", "prio", "try", "age", "reason"), _job_rows(page.jobs, now)
        )
        if page.scanned_back_to is not None:
            click.echo(
                f"Searched back to {format_instant(page.scanned_back_to)}; continue with --after {page.after}"
            )
        elif page.after is not None:
            click.echo(f"There may be more: --after {page.after}")

    out.print_result(answer, print_text)


def _job_rows(found: Sequence[JobSummary], now: int) -> list[tuple[object, ...]]:
    return [
        (
            job.id,
            job.queue,
            job.task,
            job.state,
            job.priority,
            job.attempt,
            format_duration(max(0, now - job.created_at)),
            job.reason,
        )
        for job in found
    ]


def print_timeline(
    session: StoreSession, out: Output, timeline: Timeline, more: dict[str, int | None]
) -> None:
    """Print a job with its history; `more` names further instants to show."""
    position = session.reader.position(timeline.job.id)
    position_json = None if position is None else {"ahead": position.ahead, "is_exact": position.is_exact}

    first = _find_sequence_head(session, timeline.job)
    instants = {name: iso_instant(at) for name, at in more.items()}
    shown = {name.replace("_", " "): format_instant(at) for name, at in more.items()}

    def print_text() -> None:
        progress = {"progress": _format_progress(timeline.progress)}
        ahead = {"waits for": first, "ahead of it": position_json and position_json["ahead"]}
        print_fields({**_job_details(timeline.job), **progress, **ahead, **shown})
        print_edges(edges)
        print_table(
            ("when", "what", "detail"),
            [(format_instant(at), what, detail) for at, what, detail in timeline_lines(timeline)],
            title="Timeline",
        )
        _print_steps_and_log(timeline.progress)
        for attempt in timeline.attempts:
            if attempt.error.traceback:
                click.echo(f"\nAttempt {attempt.attempt}:\n{text(attempt.error.traceback).rstrip()}")

    edges = load_edges(session.reader, timeline.job.id)
    answer = {**timeline_json(timeline), "position": position_json, "waits_for": first}
    out.print_result({**answer, **instants, **edges_json(edges)}, print_text)


def _find_sequence_head(session: StoreSession, job: Job) -> JobId | None:
    """Return the first job of a blocked job's sequence; its other reasons to wait are its parents."""
    if job.state is not JobState.BLOCKED or job.sequence is None:
        return None
    first = session.reader.first_in_sequence(job.sequence)
    return None if first == job.id else first


def _format_progress(progress: JobProgress) -> str | None:
    latest = progress.progress
    if latest is None:
        return None
    done = f"{latest.done:,g}" if latest.total is None else f"{latest.done:,g} of {latest.total:,g}"
    return f"{done} {latest.message}".strip() + f" (attempt {latest.attempt}, {format_instant(latest.at)})"


def _print_steps_and_log(progress: JobProgress) -> None:
    if progress.steps:
        steps = [(format_instant(step.at), step.name, step.attempt) for step in progress.steps]
        print_table(("when", "step", "attempt"), steps, title="Steps done")
    if progress.lines:
        lines = [(format_instant(line.at), line.attempt, line.level, line.text) for line in progress.lines]
        print_table(("when", "attempt", "level", "text"), lines[-MAX_SHOWN_LOG_LINES:], title="Log")


def _format_retries(count: int) -> str:
    return "1 retry" if count == 1 else f"{count} retries"


def _job_details(job: Job) -> dict[str, object]:
    call = decode_arguments(job.payload)
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "state": job.state,
        "reason": job.reason,
        "priority": job.priority,
        "args": call["args"] and _format_json(call["args"]),
        "kwargs": call["kwargs"] and _format_json(call["kwargs"]),
        "payload": call.get("payload_error"),
        "result": _format_json(decode_result_field(job.result)["result"]),
        "attempt": job.attempt,
        "run number": job.run_number,
        "failures": f"{job.failures} ({_format_retries(job.policy.max_retries)} allowed)",
        "crashes": job.crashes or None,
        "created": format_instant(job.created_at),
        "due": format_instant(job.run_at),
        "started": format_instant(job.started_at),
        "ended": format_instant(job.finished_at),
        "lease until": format_instant(job.lease_expires_at),
        "worker": job.worker,
        "timeout": format_duration(job.timeout_ms),
        "unique key": job.unique_key,
        "idempotency key": job.idempotency_key,
        "sequence": job.sequence,
        "correlation id": job.correlation_id,
        "parent": job.parent_id,
        "tags": ", ".join(job.tags),
        "metadata": job.metadata and _format_json(job.metadata),
        "asked to stop": job.cancel_reason,
    }
