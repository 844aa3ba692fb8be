"""`forebay dead`: the dead letters."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from forebay.app.grouping import failure_groups
from forebay.app.searching import counted, listed
from forebay.cli.acting import Choice, Deed, act
from forebay.cli.filters import Filter, with_filter
from forebay.cli.jobs import (
    AFTER,
    ALL,
    ID,
    IDS,
    deletion,
    history_of,
    revival,
    revival_options,
    show_list,
    show_timeline,
)
from forebay.cli.opening import Desk
from forebay.cli.options import at_store, limit_option, yes_option
from forebay.cli.output import Output, jobs_of, moment, table, text
from forebay.cli.shapes import group_json
from forebay.domain.group import MOST_NEWEST, NEWEST, Group, check_group
from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState
from forebay.errors import IllegalTransition
from forebay.stores.protocol import Verdict

DEAD = frozenset({JobState.DEAD})
GROUP = click.option(
    "--group", callback=lambda _, __, group: group and check_group(group), help="Of this failure group."
)


@click.group()
def dead() -> None:
    """Look at the dead letters, revive or purge them.

    They are the jobs that have used up their retries or cannot succeed; nothing tries them again by itself.
    """


def _among_dead(chosen: Filter) -> Filter:
    return Filter(given={**chosen.given, "states": (JobState.DEAD,)})


def _if_dead(desk: Desk, deed: Deed) -> Deed:
    """The deed, done by id to dead letters only: `purge` must not remove a job that was revived long ago.

    A job that is revived between this look and the deed is not spared; the store guards running jobs only.
    """

    def to_ids(ids: Sequence[JobId]) -> list[Verdict]:
        found = dict(zip(ids, desk.reader.jobs(ids), strict=True))
        dead = [job_id for job_id, job in found.items() if job is not None and job.state is JobState.DEAD]
        done = {verdict.job_id: verdict for verdict in deed.to_ids(dead)}
        return [done.get(job_id) or _refused(job_id, job) for job_id, job in found.items()]

    return replace(deed, to_ids=to_ids)


def _refused(job_id: JobId, job: Job | None) -> Verdict:
    if job is None:
        return Verdict(job_id=job_id, done=False, state=None)
    return Verdict(job_id=job_id, done=False, state=job.state, reason=f"it is {job.state}, not dead")


@dead.command("list")
@AFTER
@limit_option(50)
@with_filter("states")
@at_store()
def list_dead(desk: Desk, out: Output, chosen: Filter, limit: int, after: str | None) -> None:
    """List the dead letters, newest first."""
    query = _among_dead(chosen).query(desk)
    page = listed(desk.reader, query, limit, after)
    total, is_exact = counted(desk.reader, query)
    show_list(desk, out, page, total=total, total_is_exact=is_exact, has_more=page.after is not None)


@dead.command()
@ID
@at_store()
def show(desk: Desk, out: Output, job_id: str) -> None:
    """Show a dead letter with the error of every attempt."""
    timeline = history_of(desk, job_id)
    if timeline.job.state is not JobState.DEAD:
        raise IllegalTransition(f"job {job_id} is {timeline.job.state}, not dead; see `forebay jobs show`")
    failed = [attempt.ended_at for attempt in timeline.attempts]
    more = {
        "first_failed_at": min(failed, default=None),
        "last_failed_at": max(failed, default=None),
        "died_at": timeline.job.finished_at,
    }
    show_timeline(desk, out, timeline, more)


@dead.command()
@IDS
@revival_options
@GROUP
@ALL
@yes_option
@with_filter("states")
@at_store()
def revive(
    desk: Desk, out: Output, target: str | None, delay: int, keep_failures: bool, **which: Any
) -> None:
    """Put dead letters back, with fresh failures; in careful batches by `forebay ramps start`."""
    choice = Choice(**which)
    deed = revival(desk, DEAD, target, delay, reset=not keep_failures, group=choice.group)
    act(desk, out, _if_dead(desk, deed), choice)


@dead.command()
@IDS
@GROUP
@ALL
@yes_option
@with_filter("states")
@at_store()
def purge(desk: Desk, out: Output, **which: Any) -> None:
    """Remove dead letters for good."""
    choice = Choice(**which)
    act(desk, out, _if_dead(desk, deletion(desk, DEAD, choice.group)), choice)


@dead.command("groups")
@click.option(
    "--newest",
    type=click.IntRange(1, MOST_NEWEST),
    default=NEWEST,
    show_default=True,
    help="Look at so many dead letters, the newest ones.",
)
@limit_option(50)
@with_filter("states")
@at_store()
def list_groups(desk: Desk, out: Output, chosen: Filter, newest: int, limit: int) -> None:
    """Show dead letters by what they died of, the largest group first."""
    found = failure_groups(desk.reader, chosen.query(desk), newest)
    shown = found.groups[:limit]

    def people() -> None:
        rows = [
            (one.id, one.jobs, moment(one.first_at), moment(one.last_at), ", ".join(one.tasks), _what(one))
            for one in shown
        ]
        table(("group", "jobs", "first", "last", "tasks", "reason"), rows)
        more = "" if found.is_whole else "; there are older ones, see --newest"
        click.echo(f"{len(found.groups)} groups of {jobs_of(found.jobs)}{more}")

    answer = {"jobs": found.jobs, "is_whole": found.is_whole, "others": found.others}
    out.answer({"groups": [group_json(one) for one in shown], **answer}, people)


def _what(group: Group) -> str:
    """Why they died, and where."""
    return f"{group.message} (in {group.frames[-1]})" if group.frames else group.message


@dead.command()
@ID
@click.option("--output", "-o", "path", type=click.Path(path_type=Path), help="Into this file.")
@at_store()
def payload(desk: Desk, out: Output, job_id: str, path: Path | None) -> None:
    """Write the stored arguments of a dead letter, as they are and with all secrets.

    They go to standard output, or into a file; with --json as base64.
    """
    [job] = desk.reader.jobs([JobId(job_id)])
    if job is None or job.state is not JobState.DEAD:
        _refused(JobId(job_id), job).check()
        return
    if path is not None:
        path.write_bytes(job.payload)
        out.say({"path": str(path), "bytes": len(job.payload)}, f"{len(job.payload):,} bytes in {path}")
        return
    told = {"payload_base64": base64.b64encode(job.payload).decode("ascii")}
    # A terminal is spared what would move its cursor.
    shown = text(job.payload.decode(errors="replace")) if sys.stdout.isatty() else job.payload
    out.answer(told, lambda: click.echo(shown, nl=False))
