"""What goes wrong in a command: one sentence for people, an object for programs, a status for scripts."""

from __future__ import annotations

import re
import sys
import traceback
from enum import IntEnum
from typing import Final

import click

from forebay.cli.guessing import meant
from forebay.cli.redacting import redacted
from forebay.errors import (
    AlertNotFound,
    ConfigError,
    DuplicateJob,
    Forbidden,
    ForebayError,
    IllegalTransition,
    InvalidJob,
    JobNotFound,
    KeyNotFound,
    QueueClosed,
    QueueFull,
    QueueNotEmpty,
    QueueNotFound,
    RampNotFound,
    RateLimited,
    RuleNotFound,
    ScheduleNotFound,
    SessionNotFound,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnusable,
    Unauthenticated,
    UnknownTask,
    WorkerNotFound,
    WorkersDied,
)

_AWAY: Final = "cannot be reached"
_UNKNOWN_USER: Final = "does not accept this user"
_UNKNOWN_COMMAND: Final = re.compile(r"No such command '(.*)'\.\Z", re.DOTALL)


# What a parameter that must be given looks like.
_MISSING: Final = {
    "app": " Name it as package.module:app, in FOREBAY_APP, or as app in forebay.toml.",
    "grants": " Say what the key is for, as in --allow produce:mail or --allow view.",
}


class Status(IntEnum):
    """What a command's exit status means; docs/reference/cli.md says it to users."""

    DONE = 0
    BAD_ANSWER = 1  # a job that was waited for is dead, the doctor found something, nothing was confirmed
    BAD_INPUT = 2
    NO_STORE = 3
    NOT_FOUND = 4
    REFUSED = 5  # the state of a job or a queue does not allow it
    TIMED_OUT = 6
    GAVE_UP = 70  # worker processes die again and again; whoever has started us may know what to do
    INTERRUPTED = 130  # by Ctrl-C; the number by which shells know it


class BrokenApp(ConfigError):
    """The app's own module raised while it was imported; the traceback is its programmer's to read."""


class Declined(ForebayError):
    """Somebody was asked and said no."""


class Interrupted(ForebayError):
    """Somebody pressed Ctrl-C."""


_STATUSES: Final[tuple[tuple[type[Exception], Status], ...]] = (
    (JobNotFound, Status.NOT_FOUND),
    (QueueNotFound, Status.NOT_FOUND),
    (WorkerNotFound, Status.NOT_FOUND),
    (ScheduleNotFound, Status.NOT_FOUND),
    (KeyNotFound, Status.NOT_FOUND),
    (SessionNotFound, Status.NOT_FOUND),
    (AlertNotFound, Status.NOT_FOUND),
    (RuleNotFound, Status.NOT_FOUND),
    (RampNotFound, Status.NOT_FOUND),
    (IllegalTransition, Status.REFUSED),
    (QueueNotEmpty, Status.REFUSED),
    (QueueClosed, Status.REFUSED),
    (QueueFull, Status.REFUSED),
    (RateLimited, Status.REFUSED),
    (DuplicateJob, Status.REFUSED),
    (Forbidden, Status.REFUSED),
    (Unauthenticated, Status.BAD_INPUT),
    (ConfigError, Status.BAD_INPUT),
    (InvalidJob, Status.BAD_INPUT),
    (UnknownTask, Status.BAD_INPUT),
    (StoreRefused, Status.BAD_INPUT),  # a value that no store of this kind can hold
    (StoreBusy, Status.REFUSED),  # another transaction holds the job or the key; the store is there
    (StoreError, Status.NO_STORE),
    (TimeoutError, Status.TIMED_OUT),
    (WorkersDied, Status.GAVE_UP),
    (Interrupted, Status.INTERRUPTED),
)


def interruption(error: BaseException) -> ForebayError:
    """What it means that a command was broken off; click makes no difference between Ctrl-C and Ctrl-D."""
    if isinstance(error.__context__, EOFError):
        return Declined("nothing was done")
    return Interrupted("interrupted")


def report(error: Exception, *, as_json: bool) -> click.exceptions.Exit:
    """Say on standard error what went wrong; the answer ends the program with its status."""
    status, message = status_of(error), redacted(str(error))
    if as_json:
        _report_json(kind_of(error), message, status)
    else:
        if isinstance(error, BrokenApp):
            lines = traceback.format_exception(error.__cause__)
            click.echo(redacted("".join(lines)), err=True, nl=False)
        click.echo(f"Error: {message}", err=True)
        if step := next_step(error):
            click.echo(f"       → {redacted(step)}", err=True)
    return click.exceptions.Exit(status)


def next_step(error: Exception) -> str:
    """What to do about an error whose own words do not say it, because programs read them too."""
    if isinstance(error, StoreUnavailable) and _AWAY in str(error):
        return "Does it run, and is the address right: host, port, a firewall between?"
    if isinstance(error, StoreUnusable) and _UNKNOWN_USER in str(error):
        return "Look at the user and the password in the address; signs such as @ are written %40 there."
    if isinstance(error, Unauthenticated):
        return (
            "Put the token of a key into FOREBAY_KEY; `forebay keys create` makes one on the server's side."
        )
    missing = error.__cause__ if isinstance(error, BrokenApp) else None
    if isinstance(missing, ModuleNotFoundError):
        return f"Install {missing.name}, or use the Python that has it; this one is {sys.executable}."
    return ""


def report_usage(
    error: click.ClickException, *, as_json: bool
) -> click.exceptions.Exit | click.ClickException:
    """The same for words that do not fit the command; click says it to people, with the usage."""
    message = redacted(error.format_message() + _way_out(error))
    if as_json:
        _report_json("UsageError", message, Status(error.exit_code))
        return click.exceptions.Exit(error.exit_code)
    if message == error.format_message():
        return error
    return click.UsageError(message, ctx=getattr(error, "ctx", None))


def _way_out(error: click.ClickException) -> str:
    said = error.format_message()
    if isinstance(error, click.UsageError) and (unknown := _UNKNOWN_COMMAND.match(said)):
        return _other_command(unknown[1], error.ctx)
    if isinstance(error, click.NoSuchOption) and not error.option_name.startswith("--"):
        return (
            " A value that begins with - stands behind --, as in `enqueue TASK -- -1`; "
            "there it is a text, and :=-1 is the number."
        )
    param = error.param if isinstance(error, click.MissingParameter) else None
    return "" if param is None else _MISSING.get(str(param.name), "")


def _other_command(name: str, ctx: click.Context | None) -> str:
    """What may have been meant, unless click has said it, as newer ones do; and else where the list is."""
    if ctx is None or not isinstance(ctx.command, click.Group):
        return ""
    near = meant(name, ctx.command.list_commands(ctx))
    if near:
        return f" Did you mean {' or '.join(near)}?"
    return f" `{ctx.command_path} --help` lists them."


def _report_json(kind: str, message: str, status: Status) -> None:
    import msgspec  # noqa: PLC0415 - only when something went wrong

    # Words of a command line may hold bytes that are no text, and JSON cannot.
    message = message.encode("utf-8", "backslashreplace").decode()
    error = {"kind": kind, "message": message, "status": int(status)}
    click.echo(msgspec.json.encode({"error": error}), err=True)


def kind_of(error: Exception) -> str:
    """What an error is called in JSON."""
    return "ConfigError" if isinstance(error, BrokenApp) else type(error).__name__


def status_of(error: Exception) -> Status:
    """The exit status that an error leads to."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), Status.BAD_ANSWER)
