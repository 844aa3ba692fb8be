"""`forebay dead`: list dead letters and act on them."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from forebay.cli.commands.jobs import (
    AFTER,
    ALL,
    ID,
    IDS,
    delete_action,
    print_jobs,
    print_timeline,
    require_timeline,
    revive_action,
    with_revive_options,
)
from forebay.cli.job_actions import JobAction, JobSelection, run_action
from forebay.cli.job_filters import Filter, with_filter
from forebay.cli.json_format import failure_group_json
from forebay.cli.options import limit_option, with_store, yes_option
from forebay.cli.output import Output, format_instant, format_job_count, print_table, text
from forebay.cli.store_session import StoreSession
from forebay.domain.failure_group import DEFAULT_NEWEST, MAX_NEWEST, FailureGroup, check_group
from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.errors import IllegalTransition
from forebay.operations.failure_groups import failure_groups
from forebay.operations.job_search import count_jobs, search_jobs
from forebay.stores.contract.claims_and_results import ActionResult

DEAD = frozenset({JobState.DEAD})
GROUP = click.option(
    "--group", callback=lambda _, __, group: group and check_group(group), help="In this failure group."
)


@click.group()
def dead() -> None:
    """List, show, revive and purge dead letters.

    A dead letter is a job that has used up its retries or cannot succeed. It is not retried automatically.
    """


def _restrict_to_dead(chosen: Filter) -> Filter:
    return Filter(given={**chosen.given, "states": (JobState.DEAD,)})


def _guard_by_state(session: StoreSession, action: JobAction) -> JobAction:
    """Restrict an action on ids to dead letters: `purge` must not delete a job that was revived long ago.

    A job that is revived between this read and the action is not protected: the store guards only running
    jobs.
    """

    def to_ids(ids: Sequence[JobId]) -> list[ActionResult]:
        found = dict(zip(ids, session.reader.jobs(ids), strict=True))
        dead = [job_id for job_id, job in found.items() if job is not None and job.state is JobState.DEAD]
        results = {result.job_id: result for result in action.apply_to_ids(dead)}
        return [results.get(job_id) or _refusal(job_id, job) for job_id, job in found.items()]

    return replace(action, apply_to_ids=to_ids)


def _refusal(job_id: JobId, job: Job | None) -> ActionResult:
    if job is None:
        return ActionResult(job_id=job_id, applied=False, state=None)
    return ActionResult(job_id=job_id, applied=False, state=job.state, reason=f"it is {job.state}, not dead")


@dead.command("list")
@AFTER
@limit_option(50)
@with_filter("states")
@with_store()
def list_dead(session: StoreSession, out: Output, chosen: Filter, limit: int, after: str | None) -> None:
    """List the dead letters, newest first."""
    query = _restrict_to_dead(chosen).to_query(session)
    page = search_jobs(session.reader, query, limit, after)
    total, is_exact = count_jobs(session.reader, query)
    print_jobs(session, out, page, total=total, total_is_exact=is_exact, has_more=page.after is not None)


@dead.command()
@ID
@with_store()
def show(session: StoreSession, out: Output, job_id: str) -> None:
    """Show a dead letter with the error of every attempt."""
    timeline = require_timeline(session, job_id)
    if timeline.job.state is not JobState.DEAD:
        raise IllegalTransition(f"job {job_id} is {timeline.job.state}, not dead; see `forebay jobs show`")
    failed = [attempt.ended_at for attempt in timeline.attempts]
    more = {
        "first_failed_at": min(failed, default=None),
        "last_failed_at": max(failed, default=None),
        "failed_at": timeline.job.finished_at,
    }
    print_timeline(session, out, timeline, more)


@dead.command()
@IDS
@with_revive_options
@GROUP
@ALL
@yes_option
@with_filter("states")
@with_store()
def revive(
    session: StoreSession, out: Output, target: str | None, delay: int, keep_failures: bool, **which: Any
) -> None:
    """Move dead letters back to their queues, with the count of failures reset.

    `forebay gradual-revives start` does it in growing batches.
    """
    choice = JobSelection(**which)
    action = revive_action(session, DEAD, target, delay, reset=not keep_failures, group=choice.group)
    run_action(session, out, _guard_by_state(session, action), choice)


@dead.command()
@IDS
@GROUP
@ALL
@yes_option
@with_filter("states")
@with_store()
def purge(session: StoreSession, out: Output, **which: Any) -> None:
    """Delete dead letters."""
    choice = JobSelection(**which)
    run_action(session, out, _guard_by_state(session, delete_action(session, DEAD, choice.group)), choice)


@dead.command("groups")
@click.option(
    "--newest",
    type=click.IntRange(1, MAX_NEWEST),
    default=DEFAULT_NEWEST,
    show_default=True,
    help="How many dead letters to group, newest first.",
)
@limit_option(50)
@with_filter("states")
@with_store()
def list_groups(session: StoreSession, out: Output, chosen: Filter, newest: int, limit: int) -> None:
    """Show dead letters grouped by error, the largest group first."""
    found = failure_groups(session.reader, chosen.to_query(session), newest)
    shown = found.groups[:limit]

    def print_text() -> None:
        rows = [
            (
                group.id,
                group.jobs,
                format_instant(group.first_at),
                format_instant(group.last_at),
                ", ".join(group.tasks),
                _describe_group(group),
            )
            for group in shown
        ]
        print_table(("group", "jobs", "first", "last", "tasks", "reason"), rows)
        more = "" if found.is_complete else "; there are older ones, see --newest"
        click.echo(f"{len(found.groups)} groups of {format_job_count(found.jobs)}{more}")

    answer = {"jobs": found.jobs, "is_complete": found.is_complete, "others": found.others}
    out.print_result({"groups": [failure_group_json(group) for group in shown], **answer}, print_text)


def _describe_group(group: FailureGroup) -> str:
    """Return the error of the group and the frame that raised it."""
    return f"{group.message} (in {group.frames[-1]})" if group.frames else group.message


@dead.command()
@ID
@click.option("--output", "-o", "path", type=click.Path(path_type=Path), help="The file to write.")
@with_store()
def payload(session: StoreSession, out: Output, job_id: str, path: Path | None) -> None:
    """Write the stored arguments of a dead letter, unmasked.

    They go to standard output or to a file; with --json as base64.
    """
    [job] = session.reader.jobs([JobId(job_id)])
    if job is None or job.state is not JobState.DEAD:
        _refusal(JobId(job_id), job).check()
        return
    if path is not None:
        path.write_bytes(job.payload)
        out.print_message(
            {"path": str(path), "bytes": len(job.payload)}, f"{len(job.payload):,} bytes in {path}"
        )
        return
    encoded = {"payload_base64": base64.b64encode(job.payload).decode("ascii")}
    # Control characters would move the cursor of a terminal.
    shown = text(job.payload.decode(errors="replace")) if sys.stdout.isatty() else job.payload
    out.print_result(encoded, lambda: click.echo(shown, nl=False))
