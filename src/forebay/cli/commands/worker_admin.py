"""`forebay workers`: list workers and send them commands through the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from forebay.cli.errors import ExitStatus
from forebay.cli.json_format import worker_json
from forebay.cli.options import Command as Func
from forebay.cli.options import QueueParam, with_store, yes_option
from forebay.cli.output import (
    Output,
    confirm,
    format_duration,
    format_instant,
    print_fields,
    print_table,
    text,
)
from forebay.cli.store_session import StoreSession
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import SHOWN_JOBS, HeartbeatStatus, WorkerInfo
from forebay.domain.worker_command import COMMAND_EXPIRES_MS, Command, CommandKind
from forebay.errors import ConfigError, WorkerNotFound

_POLL_SECONDS: Final = 0.1
# An id begins with the start time of its worker, so short prefixes are common to many workers.
_MIN_PREFIX_LENGTH: Final = 4
_MEGABYTE: Final = 1_048_576
_WORKER_COLUMNS: Final = (
    *("worker", "host", "pid", "state", "heartbeat", "queues"),
    *("running", "done", "failed", "memory", "up", "last heartbeat"),
)


class DefaultListGroup(click.Group):
    """Command group whose default command is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: `forebay workers`, `forebay workers pause 01KXY --queue mail`, "
    "`forebay workers stop --all --yes`, `forebay workers stacks 01KXY`.",
)
def workers() -> None:
    """List, inspect, pause, resume and stop workers.

    An id may be shortened as long as it names one worker. Commands go through the store: a worker receives
    them within a second, on any machine. A command that is not delivered after 30 s expires.
    """


@workers.command("list")
@with_store()
def list_workers(session: StoreSession, out: Output) -> None:
    """List the workers with their state. This is what `forebay workers` alone does."""
    now, found = session.reader.now(), session.reader.workers()
    out.print_result(
        {"workers": [worker_json(worker, now) for worker in found]}, lambda: print_workers(found, now)
    )


def print_workers(workers: list[WorkerInfo], now: int) -> None:
    """Print workers with their state and the time since their last heartbeat."""
    rows = [_worker_row(worker, now) for worker in workers]
    print_table(_WORKER_COLUMNS, rows, title="Workers")


def _worker_row(worker: WorkerInfo, now: int) -> tuple[object, ...]:
    queues = ", ".join(f"{name} (paused)" if name in worker.paused else name for name in worker.queues)
    running = f"{len(worker.running)}+" if len(worker.running) == SHOWN_JOBS else len(worker.running)
    memory = "" if worker.memory is None else f"{worker.memory // _MEGABYTE} MB"
    uptime, last_heartbeat = (
        format_duration(max(0, now - worker.started_at)),
        f"{format_duration(max(0, now - worker.heartbeat_at))} ago",
    )
    labels = (worker.id, worker.host, worker.pid, worker.state, worker.heartbeat_status(now), queues)
    return (*labels, running, worker.completed, worker.failed, memory, uptime, last_heartbeat)


@workers.command()
@click.argument("worker", metavar="ID")
@with_store()
def show(session: StoreSession, out: Output, worker: str) -> None:
    """Show one worker, with the pending jobs of its queues."""
    now, [info] = session.reader.now(), resolve_workers(session, [worker])
    counts = session.reader.counts(info.queues) if info.queues else {}
    depths = {name: counts[name].pending for name in info.queues if name in counts}
    out.print_result({**worker_json(info, now), "depths": depths}, lambda: _print_worker(info, now, depths))


def _print_worker(worker: WorkerInfo, now: int, depths: dict[QueueName, int]) -> None:
    print_fields(
        {
            "worker": worker.id,
            "host": worker.host,
            "pid": worker.pid,
            "supervisor": worker.supervisor or None,
            "state": worker.state,
            "heartbeat": worker.heartbeat_status(now),
            "last heartbeat": _format_last_heartbeat(worker, now),
            "heartbeat every": format_duration(worker.heartbeat_ms),
            "up since": f"{format_instant(worker.started_at)} "
            f"({format_duration(max(0, now - worker.started_at))})",
            "queues": ", ".join(worker.queues),
            "paused": ", ".join(worker.paused),
            "pending": ", ".join(f"{name}: {count}" for name, count in depths.items()),
            "slots": worker.slots,
            "running": ", ".join(worker.running),
            "ran last": ", ".join(worker.recent) or None,
            "stuck": worker.stuck or None,
            "abandoned": worker.abandoned or None,
            "completed": worker.completed,
            "failed": worker.failed,
            "memory": None if worker.memory is None else f"{worker.memory // _MEGABYTE} MB",
            "processor": None if worker.cpu is None else f"{worker.cpu:.0%} of a core",
        }
    )


def _format_last_heartbeat(worker: WorkerInfo, now: int) -> str:
    return f"{format_duration(max(0, now - worker.heartbeat_at))} ago"


# ------------------------------------------------------------------ commands


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """Selected workers, and whether to wait for their answers."""

    ids: Sequence[str]
    is_all: bool
    no_wait: bool
    yes: bool = True
    queue: str | None = None


def with_command_options(func: Func) -> Func:
    """Add the options of all commands that are sent to workers."""
    for option in (
        click.option("--no-wait", is_flag=True, help="Do not wait for the answer."),
        click.option("--all", "is_all", is_flag=True, help="All workers that are not dead."),
        click.argument("ids", metavar="[ID]...", nargs=-1),
    ):
        func = option(func)
    return func


def with_queue_option(func: Func) -> Func:
    return click.option("--queue", type=QueueParam(), help="Only this queue.")(func)


@workers.command(
    epilog="Examples: `forebay workers pause --all`, `forebay workers pause 01KXY --queue mail`."
)
@with_command_options
@with_queue_option
@with_store()
def pause(session: StoreSession, out: Output, **values: Any) -> None:
    """Pause workers: they claim nothing until they are resumed.

    Running jobs continue; jobs that are claimed and not started go back. `forebay queues pause` pauses a
    queue for all workers, also for workers that start later.
    """
    run_command(session, out, CommandKind.PAUSE, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers resume --all`.")
@with_command_options
@with_queue_option
@with_store()
def resume(session: StoreSession, out: Output, **values: Any) -> None:
    """Resume paused workers."""
    run_command(session, out, CommandKind.RESUME, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers stop 01KXY`.")
@with_command_options
@yes_option
@with_store()
def stop(session: StoreSession, out: Output, **values: Any) -> None:
    """Stop workers, as SIGTERM does.

    They claim nothing more, let running jobs end for their --drain-timeout, and release the rest.
    """
    run_command(session, out, CommandKind.STOP, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers drain 01KXY`.")
@with_command_options
@yes_option
@with_store()
def drain(session: StoreSession, out: Output, **values: Any) -> None:
    """Stop workers after their running jobs have ended, without a time limit."""
    run_command(session, out, CommandKind.DRAIN, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers halt 01KXY`.")
@with_command_options
@yes_option
@with_store()
def halt(session: StoreSession, out: Output, **values: Any) -> None:
    """Stop workers at once: running jobs are interrupted and released, and no failure is counted."""
    run_command(session, out, CommandKind.HALT, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers stacks 01KXY`.")
@with_command_options
@with_store()
def stacks(session: StoreSession, out: Output, **values: Any) -> None:
    """Show the thread stacks and the memory statistics of workers."""
    run_command(session, out, CommandKind.STACKS, CommandOptions(**values))


def run_command(session: StoreSession, out: Output, kind: CommandKind, options: CommandOptions) -> None:
    """Send a command, wait for the answers, and print them."""
    if bool(options.ids) == options.is_all:
        raise click.UsageError("Name workers by id, or all of them with --all.")
    found = find_alive(session) if options.is_all else resolve_workers(session, options.ids)
    if options.is_all and found:
        confirm(f"{kind.capitalize()} {format_worker_count(len(found))} of {session.name}?", yes=options.yes)
    queue = QueueName(options.queue) if options.queue else None
    sent = (
        session.store.send_command(kind, [worker.id for worker in found], queue=queue, actor=session.actor)
        if found
        else []
    )
    if not options.no_wait:
        sent = wait_for_answers(session, sent)
    _print_answers(session, out, sent, is_waited=not options.no_wait)


def resolve_workers(session: StoreSession, ids: Sequence[str]) -> list[WorkerInfo]:
    """Return the workers that the ids name, each once."""
    found = session.reader.workers()
    return list({worker.id: worker for worker in (_match_worker(found, given) for given in ids)}.values())


def _match_worker(found: Sequence[WorkerInfo], given: str) -> WorkerInfo:
    exact = [worker for worker in found if worker.id == given]
    by_prefix = [
        worker
        for worker in found
        if len(given) >= _MIN_PREFIX_LENGTH and worker.id.lower().startswith(given.lower())
    ]
    matches = exact or by_prefix
    if not matches:
        raise WorkerNotFound(f"there is no worker {given}; `forebay workers` lists the workers")
    if len(matches) > 1:
        raise ConfigError(
            f"{given} is the prefix of {len(matches)} workers: {', '.join(worker.id for worker in matches)}"
        )
    return matches[0]


def find_alive(session: StoreSession) -> list[WorkerInfo]:
    """Return the workers that are not dead."""
    now = session.reader.now()
    return [
        worker
        for worker in session.reader.workers()
        if worker.heartbeat_status(now) is not HeartbeatStatus.DEAD
    ]


def wait_for_answers(session: StoreSession, commands: Sequence[Command]) -> list[Command]:
    """Return the commands with the answers that arrived before they expired."""
    names = [command.id for command in commands]
    deadline = time.monotonic() + COMMAND_EXPIRES_MS / 1_000
    while True:
        # Read the workers before the answers: a worker answers before it is removed from the list.
        # A worker that is not listed here has no answer to come.
        listed = {worker.id for worker in session.reader.workers()}
        known = [new or old for new, old in zip(session.reader.commands(names), commands, strict=True)]
        may_answer = any(command.response is None and command.worker in listed for command in known)
        if not may_answer or time.monotonic() >= deadline:
            return known
        time.sleep(_POLL_SECONDS)


def _print_answers(
    session: StoreSession, out: Output, commands: Sequence[Command], *, is_waited: bool
) -> None:
    now, workers_by_id = session.reader.now(), {worker.id: worker for worker in session.reader.workers()}
    notes = {
        command.id: _describe_silence(command, workers_by_id.get(command.worker), now, is_waited=is_waited)
        for command in commands
    }
    answers = [
        {
            "worker": command.worker,
            "command": command.id,
            "answer": command.response,
            "note": notes[command.id],
        }
        for command in commands
    ]

    def print_text() -> None:
        _print_answer_lines([(command.worker, command.response or notes[command.id]) for command in commands])

    out.print_result({"answers": answers}, print_text)
    status = _exit_status(commands) if is_waited else ExitStatus.DONE
    if status is not ExitStatus.DONE:
        click.get_current_context().exit(status)


def _describe_silence(command: Command, worker: WorkerInfo | None, now: int, *, is_waited: bool) -> str:
    """Describe a command without an answer."""
    if command.response is not None:
        return ""
    if not is_waited:
        return "sent; its answer is not awaited"
    if worker is None:
        return "no answer: it has stopped and is no longer listed"
    state = "it has received it" if command.delivered_at is not None else "it may be stuck or dead"
    return f"no answer: {state}; its last heartbeat was {_format_last_heartbeat(worker, now)}"


def _print_answer_lines(lines: Sequence[tuple[WorkerId, str]]) -> None:
    if not lines:
        click.echo("There are no workers.")
    elif any("\n" in line for _, line in lines):
        for worker, line in lines:
            click.echo(f"{worker}\n{text(line)}\n")
    else:
        print_table(("worker", "answer"), lines)


def _exit_status(commands: Sequence[Command]) -> ExitStatus:
    """Return the exit status. A missing answer weighs more than a refusal: its effect is unknown."""
    checks: Sequence[tuple[ExitStatus, Callable[[Command], bool]]] = (
        (ExitStatus.TIMED_OUT, lambda command: command.response is None),
        (ExitStatus.BAD_ANSWER, lambda command: (command.response or "").startswith("failed:")),
        (ExitStatus.REFUSED, lambda command: (command.response or "").startswith("refused:")),
    )
    return next((status for status, matches in checks if any(map(matches, commands))), ExitStatus.DONE)


def format_worker_count(count: int) -> str:
    """Return a number of workers in words."""
    return "1 worker" if count == 1 else f"{count:,} workers"
