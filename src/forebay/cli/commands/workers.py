"""`forebay workers`: look at workers and steer them through the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from forebay.cli.commands.stats import print_workers
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
from forebay.domain.worker import COMMAND_EXPIRES_MS, Command, CommandKind, HeartbeatStatus, WorkerInfo
from forebay.errors import ConfigError, WorkerNotFound

_POLL_SECONDS: Final = 0.1
# An id shows when its worker was started; the beginning that two have in common says nothing about them.
_MIN_PREFIX_LENGTH: Final = 4
_MEGABYTE: Final = 1_048_576


class DefaultListGroup(click.Group):
    """`forebay workers` alone is `forebay workers list`."""

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
    """List workers, look into them, pause, resume and stop them.

    An id may be shortened as long as it names one worker. What is asked of a worker goes through the store:
    it hears within a second, wherever it runs, and what it has not heard after 30 s counts no more.
    """


@workers.command("list")
@with_store()
def list_workers(session: StoreSession, out: Output) -> None:
    """List the workers with their state. This is what `forebay workers` alone does."""
    now, found = session.reader.now(), session.reader.workers()
    out.print_result({"workers": [worker_json(one, now) for one in found]}, lambda: print_workers(found, now))


@workers.command()
@click.argument("worker", metavar="ID")
@with_store()
def show(session: StoreSession, out: Output, worker: str) -> None:
    """Show all that is known of one worker, with the jobs that wait for it."""
    now, [one] = session.reader.now(), resolve_workers(session, [worker])
    counts = session.reader.counts(one.queues) if one.queues else {}
    depths = {name: counts[name].pending for name in one.queues if name in counts}
    out.print_result({**worker_json(one, now), "depths": depths}, lambda: _print_worker(one, now, depths))


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


# ------------------------------------------------------------------ asking


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """Which workers, and whether to wait for what they say."""

    ids: Sequence[str]
    everybody: bool
    no_wait: bool
    yes: bool = True
    queue: str | None = None


def with_command_options(func: Func) -> Func:
    """The options of all commands that ask a worker for something."""
    for option in (
        click.option("--no-wait", is_flag=True, help="Do not wait for the answer."),
        click.option("--all", "everybody", is_flag=True, help="All workers that are not dead."),
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
    """Let workers claim nothing more until they are resumed.

    What runs goes on; what they have claimed and not started goes back. `forebay queues pause` pauses a
    queue for all workers, also for those that start later.
    """
    run_command(session, out, CommandKind.PAUSE, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers resume --all`.")
@with_command_options
@with_queue_option
@with_store()
def resume(session: StoreSession, out: Output, **values: Any) -> None:
    """Let paused workers claim again."""
    run_command(session, out, CommandKind.RESUME, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers stop 01KXY`.")
@with_command_options
@yes_option
@with_store()
def stop(session: StoreSession, out: Output, **values: Any) -> None:
    """Stop workers in order, as SIGTERM does.

    They claim nothing more, let running jobs end for their --drain-timeout, and hand back the rest.
    """
    run_command(session, out, CommandKind.STOP, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers drain 01KXY`.")
@with_command_options
@yes_option
@with_store()
def drain(session: StoreSession, out: Output, **values: Any) -> None:
    """Stop workers when all that runs has ended, however long that takes."""
    run_command(session, out, CommandKind.DRAIN, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers halt 01KXY`.")
@with_command_options
@yes_option
@with_store()
def halt(session: StoreSession, out: Output, **values: Any) -> None:
    """Stop workers at once: what runs is interrupted and handed back, and no failure is counted."""
    run_command(session, out, CommandKind.HALT, CommandOptions(**values))


@workers.command(epilog="Example: `forebay workers stacks 01KXY`.")
@with_command_options
@with_store()
def stacks(session: StoreSession, out: Output, **values: Any) -> None:
    """Show what the threads of workers are doing, and what their memory is full of."""
    run_command(session, out, CommandKind.STACKS, CommandOptions(**values))


def run_command(session: StoreSession, out: Output, kind: CommandKind, options: CommandOptions) -> None:
    """Ask, wait for the answers, and say them."""
    if bool(options.ids) == options.everybody:
        raise click.UsageError("Name workers by id, or all of them with --all.")
    found = find_alive(session) if options.everybody else resolve_workers(session, options.ids)
    if options.everybody and found:
        confirm(f"{kind.capitalize()} {format_worker_count(len(found))} of {session.name}?", yes=options.yes)
    queue = QueueName(options.queue) if options.queue else None
    sent = (
        session.store.send_command(kind, [one.id for one in found], queue=queue, actor=session.actor)
        if found
        else []
    )
    if not options.no_wait:
        sent = wait_for_answers(session, sent)
    _print_answers(session, out, sent, is_waited=not options.no_wait)


def resolve_workers(session: StoreSession, ids: Sequence[str]) -> list[WorkerInfo]:
    """The workers that these ids mean, each once."""
    found = session.reader.workers()
    return list({one.id: one for one in (_match_worker(found, given) for given in ids)}.values())


def _match_worker(found: Sequence[WorkerInfo], given: str) -> WorkerInfo:
    whole = [one for one in found if one.id == given]
    begin = [
        one for one in found if len(given) >= _MIN_PREFIX_LENGTH and one.id.lower().startswith(given.lower())
    ]
    fit = whole or begin
    if not fit:
        raise WorkerNotFound(f"there is no worker {given}; `forebay workers` lists those there are")
    if len(fit) > 1:
        raise ConfigError(
            f"{given} is the beginning of {len(fit)} workers: {', '.join(one.id for one in fit)}"
        )
    return fit[0]


def find_alive(session: StoreSession) -> list[WorkerInfo]:
    """The workers that may hear something."""
    now = session.reader.now()
    return [one for one in session.reader.workers() if one.heartbeat_status(now) is not HeartbeatStatus.DEAD]


def wait_for_answers(session: StoreSession, commands: Sequence[Command]) -> list[Command]:
    """The commands with their answers, as far as those have come before they expire."""
    names = [command.id for command in commands]
    ends = time.monotonic() + COMMAND_EXPIRES_MS / 1_000
    while True:
        # First who is there, then the answers: a worker answers before it is taken off the list, so one that
        # was not there any more has said all it will say.
        there = {one.id for one in session.reader.workers()}
        known = [new or old for new, old in zip(session.reader.commands(names), commands, strict=True)]
        may_answer = any(command.response is None and command.worker in there for command in known)
        if not may_answer or time.monotonic() >= ends:
            return known
        time.sleep(_POLL_SECONDS)


def _print_answers(
    session: StoreSession, out: Output, commands: Sequence[Command], *, is_waited: bool
) -> None:
    now, there = session.reader.now(), {one.id: one for one in session.reader.workers()}
    notes = {
        one.id: _describe_silence(one, there.get(one.worker), now, is_waited=is_waited) for one in commands
    }
    answers = [
        {"worker": one.worker, "command": one.id, "answer": one.response, "note": notes[one.id]}
        for one in commands
    ]

    def people() -> None:
        _print_answer_lines([(one.worker, one.response or notes[one.id]) for one in commands])

    out.print_result({"answers": answers}, people)
    status = _exit_status(commands) if is_waited else ExitStatus.DONE
    if status is not ExitStatus.DONE:
        click.get_current_context().exit(status)


def _describe_silence(command: Command, worker: WorkerInfo | None, now: int, *, is_waited: bool) -> str:
    """What to say of a command without an answer."""
    if command.response is not None:
        return ""
    if not is_waited:
        return "asked; what it answers is not waited for"
    if worker is None:
        return "no answer: it has ended, and is not on the list any more"
    taken = "it has heard and not answered" if command.delivered_at is not None else "it may be stuck or dead"
    return f"no answer: {taken}; its last heartbeat was {_format_last_heartbeat(worker, now)}"


def _print_answer_lines(lines: Sequence[tuple[WorkerId, str]]) -> None:
    if not lines:
        click.echo("There is no worker to ask.")
    elif any("\n" in line for _, line in lines):
        for worker, line in lines:
            click.echo(f"{worker}\n{text(line)}\n")
    else:
        print_table(("worker", "answer"), lines)


def _exit_status(commands: Sequence[Command]) -> ExitStatus:
    """No answer weighs more than a refusal: what became of it is not known."""
    checks: Sequence[tuple[ExitStatus, Callable[[Command], bool]]] = (
        (ExitStatus.TIMED_OUT, lambda one: one.response is None),
        (ExitStatus.BAD_ANSWER, lambda one: (one.response or "").startswith("failed:")),
        (ExitStatus.REFUSED, lambda one: (one.response or "").startswith("refused:")),
    )
    return next((status for status, fits in checks if any(map(fits, commands))), ExitStatus.DONE)


def format_worker_count(count: int) -> str:
    """A number of workers in words."""
    return "1 worker" if count == 1 else f"{count:,} workers"
