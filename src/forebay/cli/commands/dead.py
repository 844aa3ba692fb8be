"""`forebay dead`: the dead letters."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from forebay.cli.bulk_actions import JobAction, JobSelection, run_action
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
from forebay.cli.filters import Filter, with_filter
from forebay.cli.json_format import failure_group_json
from forebay.cli.options import limit_option, with_store, yes_option
from forebay.cli.output import Output, format_instant, format_job_count, print_table, text
from forebay.cli.store_session import StoreSession
from forebay.domain.failure_group import DEFAULT_NEWEST, MAX_NEWEST, FailureGroup, check_group
from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState
from forebay.errors import IllegalTransition
from forebay.operations.failure_groups import failure_groups
from forebay.operations.search import count_jobs, search_jobs
from forebay.stores.contract.values import ActionResult

DEAD = frozenset({JobState.DEAD})
GROUP = click.option(
    "--group", callback=lambda _, __, group: group and check_group(group), help="Of this failure group."
)


@click.group()
def dead() -> None:
    """Look at the dead letters, revive or purge them.

    They are the jobs that have used up their retries or cannot succeed; nothing tries them again by itself.
    """


def _restrict_to_dead(chosen: Filter) -> Filter:
    return Filter(given={**chosen.given, "states": (JobState.DEAD,)})


def _guard_by_state(session: StoreSession, action: JobAction) -> JobAction:
    """The deed, done by id to dead letters only: `purge` must not remove a job that was revived long ago.

    A job that is revived between this look and the deed is not spared; the store guards running jobs only.
    """

    def to_ids(ids: Sequence[JobId]) -> list[ActionResult]:
        found = dict(zip(ids, session.reader.jobs(ids), strict=True))
        dead = [job_id for job_id, job in found.items() if job is not None and job.state is JobState.DEAD]
        done = {verdict.job_id: verdict for verdict in action.apply_to_ids(dead)}
        return [done.get(job_id) or _refusal(job_id, job) for job_id, job in found.items()]

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
        "died_at": timeline.job.finished_at,
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
    """Put dead letters back, with fresh failures; in careful batches by `forebay gradual-revives start`."""
    choice = JobSelection(**which)
    deed = revive_action(session, DEAD, target, delay, reset=not keep_failures, group=choice.group)
    run_action(session, out, _guard_by_state(session, deed), choice)


@dead.command()
@IDS
@GROUP
@ALL
@yes_option
@with_filter("states")
@with_store()
def purge(session: StoreSession, out: Output, **which: Any) -> None:
    """Remove dead letters for good."""
    choice = JobSelection(**which)
    run_action(session, out, _guard_by_state(session, delete_action(session, DEAD, choice.group)), choice)


@dead.command("groups")
@click.option(
    "--newest",
    type=click.IntRange(1, MAX_NEWEST),
    default=DEFAULT_NEWEST,
    show_default=True,
    help="Look at so many dead letters, the newest ones.",
)
@limit_option(50)
@with_filter("states")
@with_store()
def list_groups(session: StoreSession, out: Output, chosen: Filter, newest: int, limit: int) -> None:
    """Show dead letters by what they died of, the largest group first."""
    found = failure_groups(session.reader, chosen.to_query(session), newest)
    shown = found.groups[:limit]

    def people() -> None:
        rows = [
            (
                one.id,
                one.jobs,
                format_instant(one.first_at),
                format_instant(one.last_at),
                ", ".join(one.tasks),
                _describe_group(one),
            )
            for one in shown
        ]
        print_table(("group", "jobs", "first", "last", "tasks", "reason"), rows)
        more = "" if found.is_complete else "; there are older ones, see --newest"
        click.echo(f"{len(found.groups)} groups of {format_job_count(found.jobs)}{more}")

    answer = {"jobs": found.jobs, "is_complete": found.is_complete, "others": found.others}
    out.print_result({"groups": [failure_group_json(one) for one in shown], **answer}, people)


def _describe_group(group: FailureGroup) -> str:
    """Why they died, and where."""
    return f"{group.message} (in {group.frames[-1]})" if group.frames else group.message


@dead.command()
@ID
@click.option("--output", "-o", "path", type=click.Path(path_type=Path), help="Into this file.")
@with_store()
def payload(session: StoreSession, out: Output, job_id: str, path: Path | None) -> None:
    """Write the stored arguments of a dead letter, as they are and with all secrets.

    They go to standard output, or into a file; with --json as base64.
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
    told = {"payload_base64": base64.b64encode(job.payload).decode("ascii")}
    # A terminal is spared what would move its cursor.
    shown = text(job.payload.decode(errors="replace")) if sys.stdout.isatty() else job.payload
    out.print_result(told, lambda: click.echo(shown, nl=False))
