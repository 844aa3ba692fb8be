"""`forebay ramps`: dead letters come back in batches."""

from __future__ import annotations

from threading import Event
from typing import Any, Final

import click

from forebay.cli.commands.dead import GROUP
from forebay.cli.commands.jobs import ALL
from forebay.cli.errors import ExitStatus
from forebay.cli.filters import Filter, resolve_ids, with_filter
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
from forebay.operations.search import count_jobs

NAME = click.argument("name", metavar="NAME")
POLL_SECONDS: Final = 1.0
_NEVER: Final = Event()


@click.group()
def gradual_revives() -> None:
    """Revive dead letters in batches that grow while they do well.

    A ramp revives a few jobs, then more, and stops when too many of them die again. Workers and servers go on
    with it by themselves; it puts each job back at most once.
    """


@gradual_revives.command("start")
@GROUP
@click.option(
    "--initial-batch", type=click.IntRange(1, MAX_BATCH), default=10, show_default=True, help="Jobs at first."
)
@click.option(
    "--growth-factor",
    type=click.FloatRange(1, MAX_FACTOR),
    default=2,
    show_default=True,
    help="Then so many times as many each time.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(1, MAX_BATCH),
    default=MAX_BATCH,
    show_default=True,
    help="At most so many.",
)
@click.option(
    "--every",
    "every_ms",
    type=DurationParam(),
    default="30s",
    show_default=True,
    help="Not sooner than after this.",
)
@click.option(
    "--max-failure-percent",
    type=click.FloatRange(0, 100),
    default=20,
    show_default=True,
    help="Stop when more of a batch than this have died again.",
)
@click.option("--wait", is_flag=True, help="Show how far it is until it has ended; it goes on without you.")
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
    """Begin to revive the dead letters that fit, or those of a failure group."""
    resolve_ids((), chosen, everything=everything or group is not None)
    query = chosen.to_query(session)
    count, is_exact = count_jobs(session.reader, restrict_to_dead(query), group)
    confirm(f"Revive {format_job_count(count, is_exact=is_exact)} in batches in {session.name}?", yes=yes)
    made = GradualRevivePlan(**plan_options)
    ramp = start_gradual_revive(
        session.store, session.reader, query, group=group, plan=made, actor=session.actor
    )
    if wait:
        _wait_until_ended(session, out, ramp.name, count)
    else:
        out.print_message(
            gradual_revive_json(ramp), f"ramp {ramp.name} started; see `forebay ramps show {ramp.name}`"
        )


def _wait_until_ended(session: StoreSession, out: Output, name: str, count: int) -> None:
    """Look on until it is over."""
    with progress_bar("revived", count) as tell:
        while (ramp := find_gradual_revive(session.reader, name)).state is GradualReviveState.RUNNING:
            tell(ramp.revived)
            _NEVER.wait(POLL_SECONDS)
        tell(ramp.revived)
    _show(out, ramp)
    if ramp.state is not GradualReviveState.COMPLETED:
        click.get_current_context().exit(ExitStatus.BAD_ANSWER)


@gradual_revives.command("list")
@with_store()
def list_revives(session: StoreSession, out: Output) -> None:
    """List ramps that go on, and the last ones that have ended."""
    found = list_gradual_revives(session.reader)

    def people() -> None:
        rows = [
            (
                one.name,
                one.state,
                format_instant(one.started_at),
                *_counts(one),
                one.reason or one.group or "",
            )
            for one in found
        ]
        print_table(("ramp", "is", "started", "revived", "completed", "died again", "why"), rows)

    out.print_result({"gradual_revives": [gradual_revive_json(one) for one in found]}, people)


@gradual_revives.command("show")
@NAME
@click.option("--wait", is_flag=True, help="Show how far it is until it has ended.")
@with_store()
def show(session: StoreSession, out: Output, name: str, wait: bool) -> None:
    """Show how far a ramp has come."""
    ramp = find_gradual_revive(session.reader, name)
    if wait:
        count, _ = count_jobs(session.reader, ramp.query, ramp.group)
        _wait_until_ended(session, out, name, ramp.revived + count)
    else:
        _show(out, ramp)


@gradual_revives.command("pause")
@NAME
@with_store()
def pause(session: StoreSession, out: Output, name: str) -> None:
    """Revive no more until the ramp is resumed."""
    ramp = pause_gradual_revive(session.store, session.reader, name, actor=session.actor)
    out.print_message(gradual_revive_json(ramp), f"ramp {name} paused")


@gradual_revives.command("resume")
@NAME
@with_store()
def resume(session: StoreSession, out: Output, name: str) -> None:
    """Go on with a ramp that was paused or has stopped."""
    ramp = resume_gradual_revive(session.store, session.reader, name, actor=session.actor)
    out.print_message(gradual_revive_json(ramp), f"ramp {name} goes on")


@gradual_revives.command("stop")
@NAME
@with_store()
def stop(session: StoreSession, out: Output, name: str) -> None:
    """End a ramp; what was revived goes on."""
    ramp = stop_gradual_revive(session.store, session.reader, name, actor=session.actor)
    out.print_message(gradual_revive_json(ramp), f"ramp {name} stopped")


def _counts(gradual_revive: GradualRevive) -> tuple[int, int, int]:
    return gradual_revive.revived, gradual_revive.completed_jobs, gradual_revive.dead_jobs


def _show(out: Output, gradual_revive: GradualRevive) -> None:
    pace = gradual_revive.plan
    told = {
        "ramp": gradual_revive.name,
        "is": gradual_revive.state,
        "why": gradual_revive.reason,
        "group": gradual_revive.group,
        "started": format_instant(gradual_revive.started_at),
        "by": gradual_revive.started_by.partition("#")[0],
        "ended": format_instant(gradual_revive.ended_at),
        "batches": f"{gradual_revive.batches}, one every {format_duration(pace.every_ms)}, next of "
        f"{pace.size(gradual_revive.batches)}",
        "stops": f"when more than {pace.max_failure_percent:g} % of a batch died again",
        "revived": str(gradual_revive.revived),
        "completed": str(gradual_revive.completed_jobs),
        "died again": str(gradual_revive.dead_jobs),
        "not ended yet": str(len(gradual_revive.watched)),
        "could not be": gradual_revive.refused or None,
        "gone": gradual_revive.removed_jobs or None,
    }
    out.print_result(gradual_revive_json(gradual_revive), lambda: print_fields(told))
