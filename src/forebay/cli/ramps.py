"""`forebay ramps`: dead letters come back in batches."""

from __future__ import annotations

from threading import Event
from typing import Any, Final

import click

from forebay.app.grouping import among_dead
from forebay.app.ramping import all_ramps, find_ramp, pause_ramp, resume_ramp, start_ramp, stop_ramp
from forebay.app.searching import counted
from forebay.cli.dead import GROUP
from forebay.cli.failing import Status
from forebay.cli.filters import Filter, chosen_ids, with_filter
from forebay.cli.jobs import ALL
from forebay.cli.opening import Desk
from forebay.cli.options import Length, at_store, yes_option
from forebay.cli.output import Output, confirm, jobs_of, length, moment, progress, record, table
from forebay.cli.shapes import ramp_json
from forebay.domain.ramp import MAX_BATCH, MAX_FACTOR, Pace, Ramp, RampState

NAME = click.argument("name", metavar="NAME")
LOOKS_EVERY_SECONDS: Final = 1.0
_NEVER: Final = Event()


@click.group()
def ramps() -> None:
    """Revive dead letters in batches that grow while they do well.

    A ramp revives a few jobs, then more, and stops when too many of them die again. Workers and servers go on
    with it by themselves; it puts each job back at most once.
    """


@ramps.command("start")
@GROUP
@click.option(
    "--first", type=click.IntRange(1, MAX_BATCH), default=10, show_default=True, help="Jobs at first."
)
@click.option(
    "--factor",
    type=click.FloatRange(1, MAX_FACTOR),
    default=2,
    show_default=True,
    help="Then so many times as many each time.",
)
@click.option(
    "--most", type=click.IntRange(1, MAX_BATCH), default=MAX_BATCH, show_default=True, help="At most so many."
)
@click.option(
    "--every", "every_ms", type=Length(), default="30s", show_default=True, help="Not sooner than after this."
)
@click.option(
    "--stop-percent",
    type=click.FloatRange(0, 100),
    default=20,
    show_default=True,
    help="Stop when more of a batch than this have died again.",
)
@click.option("--wait", is_flag=True, help="Show how far it is until it has ended; it goes on without you.")
@ALL
@yes_option
@with_filter("states")
@at_store()
def start(
    desk: Desk,
    out: Output,
    group: str | None,
    chosen: Filter,
    everything: bool,
    yes: bool,
    wait: bool,
    **pace: Any,
) -> None:
    """Begin to revive the dead letters that fit, or those of a failure group."""
    chosen_ids((), chosen, everything=everything or group is not None)
    query = chosen.query(desk)
    count, is_exact = counted(desk.reader, among_dead(query), group)
    confirm(f"Revive {jobs_of(count, is_exact=is_exact)} in batches in {desk.name}?", yes=yes)
    made = Pace(**pace)
    ramp = start_ramp(desk.store, desk.reader, query, group=group, pace=made, actor=desk.actor)
    if wait:
        _await(desk, out, ramp.name, count)
    else:
        out.say(ramp_json(ramp), f"ramp {ramp.name} started; see `forebay ramps show {ramp.name}`")


def _await(desk: Desk, out: Output, name: str, count: int) -> None:
    """Look on until it is over."""
    with progress("revived", count) as tell:
        while (ramp := find_ramp(desk.reader, name)).state is RampState.RUNNING:
            tell(ramp.revived)
            _NEVER.wait(LOOKS_EVERY_SECONDS)
        tell(ramp.revived)
    _show(out, ramp)
    if ramp.state is not RampState.COMPLETED:
        click.get_current_context().exit(Status.BAD_ANSWER)


@ramps.command("list")
@at_store()
def list_ramps(desk: Desk, out: Output) -> None:
    """List ramps that go on, and the last ones that have ended."""
    found = all_ramps(desk.reader)

    def people() -> None:
        rows = [
            (one.name, one.state, moment(one.started_at), *_counts(one), one.reason or one.group or "")
            for one in found
        ]
        table(("ramp", "is", "started", "revived", "completed", "died again", "why"), rows)

    out.answer({"ramps": [ramp_json(one) for one in found]}, people)


@ramps.command("show")
@NAME
@click.option("--wait", is_flag=True, help="Show how far it is until it has ended.")
@at_store()
def show(desk: Desk, out: Output, name: str, wait: bool) -> None:
    """Show how far a ramp has come."""
    ramp = find_ramp(desk.reader, name)
    if wait:
        count, _ = counted(desk.reader, ramp.query, ramp.group)
        _await(desk, out, name, ramp.revived + count)
    else:
        _show(out, ramp)


@ramps.command("pause")
@NAME
@at_store()
def pause(desk: Desk, out: Output, name: str) -> None:
    """Revive no more until the ramp is resumed."""
    ramp = pause_ramp(desk.store, desk.reader, name, actor=desk.actor)
    out.say(ramp_json(ramp), f"ramp {name} paused")


@ramps.command("resume")
@NAME
@at_store()
def resume(desk: Desk, out: Output, name: str) -> None:
    """Go on with a ramp that was paused or has stopped."""
    ramp = resume_ramp(desk.store, desk.reader, name, actor=desk.actor)
    out.say(ramp_json(ramp), f"ramp {name} goes on")


@ramps.command("stop")
@NAME
@at_store()
def stop(desk: Desk, out: Output, name: str) -> None:
    """End a ramp; what was revived goes on."""
    ramp = stop_ramp(desk.store, desk.reader, name, actor=desk.actor)
    out.say(ramp_json(ramp), f"ramp {name} stopped")


def _counts(ramp: Ramp) -> tuple[int, int, int]:
    return ramp.revived, ramp.completed_jobs, ramp.dead_jobs


def _show(out: Output, ramp: Ramp) -> None:
    pace = ramp.pace
    told = {
        "ramp": ramp.name,
        "is": ramp.state,
        "why": ramp.reason,
        "group": ramp.group,
        "started": moment(ramp.started_at),
        "by": ramp.started_by.partition("#")[0],
        "ended": moment(ramp.ended_at),
        "batches": f"{ramp.batches}, one every {length(pace.every_ms)}, next of {pace.size(ramp.batches)}",
        "stops": f"when more than {pace.stop_percent:g} % of a batch died again",
        "revived": str(ramp.revived),
        "completed": str(ramp.completed_jobs),
        "died again": str(ramp.dead_jobs),
        "not ended yet": str(len(ramp.watched)),
        "could not be": ramp.refused or None,
        "gone": ramp.gone_jobs or None,
    }
    out.answer(ramp_json(ramp), lambda: record(told))
