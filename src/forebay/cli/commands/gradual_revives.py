"""`forebay gradual-revives`: revive dead letters in growing batches."""

from __future__ import annotations

from threading import Event
from typing import Any, Final

import click

from forebay.cli.commands.dead_letters import GROUP
from forebay.cli.commands.jobs import ALL
from forebay.cli.errors import ExitStatus
from forebay.cli.job_filters import Filter, resolve_ids, with_filter
from forebay.cli.json_format import gradual_revive_json
from forebay.cli.options import DurationParam, with_store, yes_option
from forebay.cli.output import (
    Output,
    confirm,
    format_duration,
    format_instant,
    format_job_count,
    print_fields,
    print_table,
    progress_bar,
)
from forebay.cli.store_session import StoreSession
from forebay.domain.gradual_revive import (
    MAX_BATCH,
    MAX_FACTOR,
    GradualRevive,
    GradualRevivePlan,
    GradualReviveState,
)
from forebay.operations.failure_groups import restrict_to_dead
from forebay.operations.gradual_revive import (
    find_gradual_revive,
    list_gradual_revives,
    pause_gradual_revive,
    resume_gradual_revive,
    start_gradual_revive,
    stop_gradual_revive,
)
from forebay.operations.job_search import count_jobs

NAME = click.argument("name", metavar="NAME")
POLL_SECONDS: Final = 1.0
_NEVER: Final = Event()


@click.group()
def gradual_revives() -> None:
    """Revive dead letters in growing batches while they succeed.

    A gradual revive revives a few jobs, then more, and stops when too many of them fail again. Workers and
    servers continue it in the background. It revives each job at most once.
    """


@gradual_revives.command("start")
@GROUP
@click.option(
    "--initial-batch",
    type=click.IntRange(1, MAX_BATCH),
    default=10,
    show_default=True,
    help="Size of the first batch.",
)
@click.option(
    "--growth-factor",
    type=click.FloatRange(1, MAX_FACTOR),
    default=2,
    show_default=True,
    help="Each batch is this many times larger.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(1, MAX_BATCH),
    default=MAX_BATCH,
    show_default=True,
    help="Largest batch.",
)
@click.option(
    "--every",
    "every_ms",
    type=DurationParam(),
    default="30s",
    show_default=True,
    help="Time between two batches, at least.",
)
@click.option(
    "--max-failure-percent",
    type=click.FloatRange(0, 100),
    default=20,
    show_default=True,
    help="Stop when more than this percentage of a batch has failed again.",
)
@click.option(
    "--wait", is_flag=True, help="Show progress until it has ended; it continues without this command."
)
@ALL
@yes_option
@with_filter("states")
@with_store()
def start(
    session: StoreSession,
    out: Output,
    group: str | None,
    chosen: Filter,
    everything: bool,
    yes: bool,
    wait: bool,
    **plan_options: Any,
) -> None:
    """Start to revive the matching dead letters, or those of a failure group."""
    resolve_ids((), chosen, everything=everything or group is not None)
    query = chosen.to_query(session)
    count, is_exact = count_jobs(session.reader, restrict_to_dead(query), group)
    confirm(f"Revive {format_job_count(count, is_exact=is_exact)} in batches in {session.name}?", yes=yes)
    plan = GradualRevivePlan(**plan_options)
    revive = start_gradual_revive(
        session.store, session.reader, query, group=group, plan=plan, actor=session.actor
    )
    if wait:
        _wait_until_ended(session, out, revive.name, count)
    else:
        out.print_message(
            gradual_revive_json(revive),
            f"gradual revive {revive.name} started; see `forebay gradual-revives show {revive.name}`",
        )


def _wait_until_ended(session: StoreSession, out: Output, name: str, count: int) -> None:
    """Show progress until the gradual revive has ended."""
    with progress_bar("revived", count) as report_progress:
        while (revive := find_gradual_revive(session.reader, name)).state is GradualReviveState.RUNNING:
            report_progress(revive.revived)
            _NEVER.wait(POLL_SECONDS)
        report_progress(revive.revived)
    _show(out, revive)
    if revive.state is not GradualReviveState.COMPLETED:
        click.get_current_context().exit(ExitStatus.BAD_ANSWER)


@gradual_revives.command("list")
@with_store()
def list_revives(session: StoreSession, out: Output) -> None:
    """List gradual revives: active ones, and those that ended last."""
    revives = list_gradual_revives(session.reader)

    def print_text() -> None:
        rows = [
            (
                revive.name,
                revive.state,
                format_instant(revive.started_at),
                *_counts(revive),
                revive.reason or revive.group or "",
            )
            for revive in revives
        ]
        print_table(("name", "state", "started", "revived", "completed", "failed again", "reason"), rows)

    out.print_result({"gradual_revives": [gradual_revive_json(revive) for revive in revives]}, print_text)


@gradual_revives.command("show")
@NAME
@click.option("--wait", is_flag=True, help="Show progress until it has ended.")
@with_store()
def show(session: StoreSession, out: Output, name: str, wait: bool) -> None:
    """Show the progress of a gradual revive."""
    revive = find_gradual_revive(session.reader, name)
    if wait:
        count, _ = count_jobs(session.reader, revive.query, revive.group)
        _wait_until_ended(session, out, name, revive.revived + count)
    else:
        _show(out, revive)


@gradual_revives.command("pause")
@NAME
@with_store()
def pause(session: StoreSession, out: Output, name: str) -> None:
    """Pause a gradual revive; no batch is started until it is resumed."""
    revive = pause_gradual_revive(session.store, session.reader, name, actor=session.actor)
    out.print_message(gradual_revive_json(revive), f"gradual revive {name} paused")


@gradual_revives.command("resume")
@NAME
@with_store()
def resume(session: StoreSession, out: Output, name: str) -> None:
    """Resume a gradual revive that was paused or has stopped."""
    revive = resume_gradual_revive(session.store, session.reader, name, actor=session.actor)
    out.print_message(gradual_revive_json(revive), f"gradual revive {name} resumed")


@gradual_revives.command("stop")
@NAME
@with_store()
def stop(session: StoreSession, out: Output, name: str) -> None:
    """Stop a gradual revive; jobs that were revived continue."""
    revive = stop_gradual_revive(session.store, session.reader, name, actor=session.actor)
    out.print_message(gradual_revive_json(revive), f"gradual revive {name} stopped")


def _counts(gradual_revive: GradualRevive) -> tuple[int, int, int]:
    return gradual_revive.revived, gradual_revive.completed_jobs, gradual_revive.dead_jobs


def _show(out: Output, gradual_revive: GradualRevive) -> None:
    plan = gradual_revive.plan
    fields = {
        "name": gradual_revive.name,
        "state": gradual_revive.state,
        "reason": gradual_revive.reason,
        "group": gradual_revive.group,
        "started": format_instant(gradual_revive.started_at),
        "by": gradual_revive.started_by.partition("#")[0],
        "ended": format_instant(gradual_revive.ended_at),
        "batches": f"{gradual_revive.batches}, one every {format_duration(plan.every_ms)}, next of "
        f"{plan.size(gradual_revive.batches)}",
        "stops": f"when more than {plan.max_failure_percent:g} % of a batch failed again",
        "revived": str(gradual_revive.revived),
        "completed": str(gradual_revive.completed_jobs),
        "failed again": str(gradual_revive.dead_jobs),
        "not ended yet": str(len(gradual_revive.watched)),
        "not revivable": gradual_revive.refused or None,
        "removed": gradual_revive.removed_jobs or None,
    }
    out.print_result(gradual_revive_json(gradual_revive), lambda: print_fields(fields))
