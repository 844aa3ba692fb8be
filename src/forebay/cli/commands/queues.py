"""`forebay queues`: list, configure, pause, drain and delete queues."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click
import msgspec

from forebay.cli.commands.jobs import DELETABLE, delete_action
from forebay.cli.commands.limits import format_limit, limit_json
from forebay.cli.job_actions import run_on_matching
from forebay.cli.job_filters import Filter, collect_distinct, parse_pair, with_filter
from forebay.cli.json_format import counts_json, decode_arguments, estimate_drain_ms, queue_json, summary_json
from forebay.cli.options import (
    DurationParam,
    QueueParam,
    limit_option,
    parse_duration_ms,
    with_store,
    yes_option,
)
from forebay.cli.output import (
    Output,
    cell,
    confirm,
    format_duration,
    format_instant,
    format_job_count,
    print_fields,
    print_table,
    progress_bar,
)
from forebay.cli.store_session import StoreSession
from forebay.domain.concurrency_and_rate_limits import Limit, scopes_of
from forebay.domain.job import Job, QueueName
from forebay.domain.job_states import WAITING, JobState
from forebay.domain.job_validation import check_queue_name
from forebay.domain.queue import Queue, QueueSettings, QueueState
from forebay.domain.queue_counts import Counts
from forebay.errors import IllegalTransition, QueueNotEmpty
from forebay.operations import bulk_actions


def setting_names() -> list[str]:
    """Return the names of all queue settings, durations without their unit."""
    return [name.removesuffix("_ms") for name in QueueSettings.__struct_fields__]


NAME = click.argument("name", metavar="QUEUE", type=QueueParam())
SETTINGS = click.argument("settings", metavar="[SETTING=VALUE]...", nargs=-1)
SETTINGS_HELP = f"Settings: {', '.join(setting_names())}."
_FIRST_ARGS: Final = 3
_POLL_SECONDS: Final = 0.25
# Short heads: eight counts, the drain time and the name of a queue fit on 80 columns.
_HEADS: Final = {
    JobState.SCHEDULED: "sched",
    JobState.BLOCKED: "block",
    JobState.RUNNING: "run",
    JobState.RETRYING: "retry",
    JobState.COMPLETED: "done",
    JobState.CANCELLED: "canc",
}


@click.group()
def queues() -> None:
    """List, create, configure, pause, drain and delete queues."""


@queues.command("list")
@with_store()
def list_queues(session: StoreSession, out: Output) -> None:
    """List the queues with their jobs by state."""
    found = session.reader.queues()
    names = [queue.name for queue in found]
    counts = session.reader.counts(names) if found else {}
    drains = {
        name: estimate_drain_ms(counts[name], throughput)
        for name, throughput in session.reader.throughputs(names).items()
    }
    answer = [{**queue_json(queue, counts[queue.name]), "drain_ms": drains[queue.name]} for queue in found]
    rows = [(queue, counts[queue.name]) for queue in found]
    out.print_result({"queues": answer}, lambda: print_counts(rows, drains))


def print_counts(
    rows: Iterable[tuple[Queue, Counts]], drain_times: Mapping[QueueName, int | None] | None = None
) -> None:
    """Print queues with their jobs by state and the estimated drain time."""
    lines = [
        (queue.name, queue.state, *(getattr(counts, state) for state in JobState)) for queue, counts in rows
    ]
    heads = ("queue", "state", *(_HEADS.get(state, state) for state in JobState))
    if drain_times is None:
        print_table(heads, lines)
    else:
        print_table((*heads, "drain"), [(*line, _format_drain_time(drain_times[line[0]])) for line in lines])


def _format_drain_time(ms: int | None) -> str:
    return "?" if ms is None else format_duration(ms) if ms else ""


@queues.command()
@NAME
@limit_option(10)
@with_store()
def show(session: StoreSession, out: Output, name: str, limit: int) -> None:
    """Show one queue and its next jobs."""
    _show(session, out, name, limit)


@click.command()
@NAME
@limit_option(10)
@with_store()
def inspect(session: StoreSession, out: Output, name: str, limit: int) -> None:
    """Show one queue and its next jobs."""
    _show(session, out, name, limit)


def _show(session: StoreSession, out: Output, name: str, limit: int) -> None:
    queue = session.find_queue(name)
    counts = session.reader.counts([queue.name])[queue.name]
    upcoming = session.reader.peek(queue.name, min(limit, 1_000))
    # A job that was claimed or deleted since the peek is left out.
    next_records = [job for job in session.reader.jobs([job.id for job in upcoming]) if job is not None]
    known = {job.id: decode_arguments(job.payload) for job in next_records}
    next_jobs = [{**summary_json(job), **known[job.id]} for job in upcoming if job.id in known]
    limits = [limit for limit in session.reader.limits() if limit.scope in scopes_of(queue.name)]
    drain_time = estimate_drain_ms(counts, session.reader.throughputs([queue.name])[queue.name])
    answer = {
        **queue_json(queue, counts),
        "length": counts.pending,
        "drain_ms": drain_time,
        "next": next_jobs,
    }
    answer["limits"] = [limit_json(limit) for limit in limits]
    out.print_result(answer, lambda: _show_queue(queue, counts, drain_time, next_records, limits))


def _show_queue(
    queue: Queue, counts: Counts, drain_time: int | None, upcoming: list[Job], limits: list[Limit]
) -> None:
    by_state = {state: number for state, number in counts_json(counts).items() if number}
    print_fields(
        {
            "queue": queue.name,
            "state": queue.state,
            "length": str(counts.pending),
            "drain time": "unknown: no job completed recently"
            if drain_time is None
            else format_duration(drain_time),
            "jobs": _format_pairs(by_state),
            "created": format_instant(queue.created_at),
            "changed": format_instant(queue.updated_at),
            "settings": _format_pairs(_format_settings(queue.settings)),
            "limits": "; ".join(f"{limit.scope} {format_limit(limit)}" for limit in limits) or "none",
        }
    )
    rows = [(job.id, job.task, job.priority, format_first_args(job)) for job in upcoming]
    print_table(("id", "task", "prio", "first arguments"), rows, title="Next jobs")


def _format_pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _format_settings(settings: QueueSettings) -> dict[str, str]:
    """Return the settings in the form that `queues configure` takes."""
    return {
        name.removesuffix("_ms"): _format_exact_duration(value)
        if name.endswith("_ms")
        else _format_value(value)
        for name, value in msgspec.to_builtins(settings).items()
    }


def _format_exact_duration(ms: int) -> str:
    """Format a duration exactly, in the largest unit that divides it; `queues configure` reads it back."""
    units = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
    return next(f"{ms // size}{unit}" for unit, size in units if ms % size == 0) if ms else "0"


def _format_value(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def format_first_args(job: Job) -> str:
    """Return the first three arguments of a job, or the reason why its payload cannot be read."""
    call = decode_arguments(job.payload)
    if "payload_error" in call:
        return str(call["payload_error"])
    given = [msgspec.json.encode(value).decode() for value in call["args"]]
    given += [f"{name}={msgspec.json.encode(value).decode()}" for name, value in call["kwargs"].items()]
    return cell(", ".join(given[:_FIRST_ARGS]))


@queues.command(epilog=SETTINGS_HELP)
@NAME
@SETTINGS
@with_store(create=True)
def create(session: StoreSession, out: Output, name: str, settings: tuple[str, ...]) -> None:
    """Create a queue, with settings such as weight=3 or lease=1m."""
    check_queue_name(name)
    changes = parse_settings(settings)
    found = session.reader.queues([QueueName(name)])
    if found and found[0].state is not QueueState.DROPPED:
        raise IllegalTransition(f"queue {name} exists already; `forebay queues configure` changes it")
    # Another program may create it between the read and this write; then the write changes its settings.
    _print_change(
        session, out, session.store.save_queue(QueueName(name), changes, actor=session.actor), "created"
    )


@queues.command(epilog=SETTINGS_HELP)
@NAME
@SETTINGS
@with_store()
def configure(session: StoreSession, out: Output, name: str, settings: tuple[str, ...]) -> None:
    """Change settings of a queue, such as lease=1m.

    Workers follow at once. Durations are written 30s, 5m, 2h or 7d; none removes a limit.
    """
    if not settings:
        raise click.UsageError(f"Give a change; the settings are {', '.join(setting_names())}.")
    changes = parse_settings(settings)
    session.require_queue(name)
    _print_change(
        session, out, session.store.save_queue(QueueName(name), changes, actor=session.actor), "configured"
    )


@queues.command()
@NAME
@with_store()
def pause(session: StoreSession, out: Output, name: str) -> None:
    """Pause a queue: no job is claimed, new jobs are accepted."""
    _set_state(session, out, name, QueueState.PAUSED, "paused")


@queues.command()
@NAME
@with_store()
def resume(session: StoreSession, out: Output, name: str) -> None:
    """Make a paused or draining queue active again."""
    _set_state(session, out, name, QueueState.ACTIVE, "resumed")


@queues.command()
@NAME
@click.option("--wait", is_flag=True, help="Wait until the queue has no live jobs.")
@click.option("--timeout", type=DurationParam(), help="Wait at most this long, such as 5m.")
@with_store()
def drain(session: StoreSession, out: Output, name: str, wait: bool, timeout: int | None) -> None:
    """Refuse new jobs and let the present ones finish."""
    if timeout is not None and not wait:
        raise click.UsageError("--timeout works only with --wait.")
    session.require_queue(name)
    queue = session.store.save_queue(QueueName(name), state=QueueState.DRAINING, actor=session.actor)
    if wait:
        _wait_until_empty(session, queue.name, timeout)
    _print_change(session, out, queue, "draining")


def _wait_until_empty(session: StoreSession, name: QueueName, timeout: int | None) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout / 1_000
    first = left = session.reader.counts([name])[name].live
    with progress_bar("drained", first) as report_progress:
        while left:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"queue {name} is draining and still has {format_job_count(left)}")
            time.sleep(_POLL_SECONDS)
            left = session.reader.counts([name])[name].live
            report_progress(first - left)


@queues.command()
@NAME
@yes_option
@with_filter("queues")
@with_store()
def purge(session: StoreSession, out: Output, name: str, chosen: Filter, yes: bool) -> None:
    """Delete the waiting jobs of a queue.

    With --state, jobs in other states; running jobs stay.
    """
    queue = session.find_queue(name)
    wanted = {"states": tuple(sorted(WAITING)), **chosen.given, "queues": (queue.name,)}
    query = Filter(given=wanted).to_query(session)
    run_on_matching(session, out, delete_action(session, DELETABLE), query, yes=yes)


@queues.command()
@NAME
@click.option("--force", is_flag=True, help="Even if it has jobs: waiting jobs go to the dead letters.")
@yes_option
@with_store()
def delete(session: StoreSession, out: Output, name: str, force: bool, yes: bool) -> None:
    """Delete a queue. Its finished jobs stay until they are pruned."""
    queue = session.find_queue(name)
    live = session.reader.counts([queue.name])[queue.name].live
    if live and not force:
        raise QueueNotEmpty(
            f"queue {name} still has {format_job_count(live)} to do; drain it, or add --force"
        )
    effect = _describe_dead_letters(live)
    confirm(f"Delete queue {name} in {session.name}?{effect and f' {effect}.'}", yes=yes)
    with progress_bar("marked dead", live) as report_progress:
        bulk_actions.drop_queue(
            session.store,
            queue.name,
            force=force,
            actor=session.actor,
            progress=lambda left: report_progress(live - left),
        )
    out.print_message({"deleted": name, "live_jobs": live}, f"queue {name} deleted{effect and f'; {effect}'}")


def _describe_dead_letters(live: int) -> str:
    """Describe what happens to the live jobs of a deleted queue; empty if there are none."""
    if live == 1:
        return "1 job in it goes to the dead letters, or ends if it runs"
    return f"{format_job_count(live)} in it go to the dead letters, or end if they run" if live else ""


def _set_state(session: StoreSession, out: Output, name: str, state: QueueState, past: str) -> None:
    session.require_queue(name)
    _print_change(
        session, out, session.store.save_queue(QueueName(name), state=state, actor=session.actor), past
    )


def _print_change(session: StoreSession, out: Output, queue: Queue, past: str) -> None:
    counts = session.reader.counts([queue.name])[queue.name]
    waiting = sum(getattr(counts, state) for state in WAITING)
    line = f"queue {queue.name} {past}; {format_job_count(waiting)} waiting, {counts.running} running"
    out.print_message(queue_json(queue, counts), line)


# Settings


def parse_settings(pairs: tuple[str, ...]) -> dict[str, object]:
    """Parse SETTING=VALUE pairs. Durations are written as `lease=30s` or `lease_ms=30000`."""
    return collect_distinct(_parse_setting(pair) for pair in pairs)


def _parse_setting(pair: str) -> tuple[str, object]:
    name, value = parse_pair(pair)
    known = QueueSettings.__struct_fields__
    if f"{name}_ms" in known:
        return f"{name}_ms", parse_duration_ms(pair.partition("=")[2])
    if name not in known:
        raise click.UsageError(f"There is no queue setting {name!r}; there are {', '.join(setting_names())}.")
    return name, None if value == "none" else value
