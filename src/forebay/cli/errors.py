"""Errors of commands: a printed sentence, a JSON object, and the exit status."""

from __future__ import annotations

import re
import sys
import traceback
from enum import IntEnum
from typing import Final

import click

from forebay.cli.redaction import redact
from forebay.cli.suggestions import close_matches
from forebay.errors import (
    AlertNotFound,
    AlertRuleNotFound,
    ApiKeyNotFound,
    ConfigError,
    DuplicateJob,
    Forbidden,
    ForebayError,
    GradualReviveNotFound,
    IllegalTransition,
    InvalidJob,
    JobNotFound,
    QueueClosed,
    QueueFull,
    QueueNotEmpty,
    QueueNotFound,
    RateLimited,
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

_UNREACHABLE: Final = "cannot be reached"
_UNKNOWN_USER: Final = "does not accept this user"
_UNKNOWN_COMMAND: Final = re.compile(r"No such command '(.*)'\.\Z", re.DOTALL)


# Hints for missing parameters.
_MISSING: Final = {
    "app": " Name it as package.module:app, in FOREBAY_APP, or as app in forebay.toml.",
    "grants": " Say what the key is for, as in --allow produce:mail or --allow view.",
}


class ExitStatus(IntEnum):
    """Exit status of a command; documented in docs/reference/cli.md."""

    DONE = 0
    BAD_ANSWER = 1  # an awaited job is dead, the doctor found a problem, or a question was declined
    BAD_INPUT = 2
    NO_STORE = 3
    NOT_FOUND = 4
    REFUSED = 5  # the state of a job or a queue does not allow it
    TIMED_OUT = 6
    GAVE_UP = 70  # worker processes keep dying; the service manager decides
    INTERRUPTED = 130  # by Ctrl-C; the number that shells use


class BrokenApp(ConfigError):
    """The import of the app's module raised an exception; its traceback is printed."""


class CommandDeclined(ForebayError):
    """The question was answered with no."""


class CommandInterrupted(ForebayError):
    """The command was interrupted by Ctrl-C."""


_STATUSES: Final[tuple[tuple[type[Exception], ExitStatus], ...]] = (
    (JobNotFound, ExitStatus.NOT_FOUND),
    (QueueNotFound, ExitStatus.NOT_FOUND),
    (WorkerNotFound, ExitStatus.NOT_FOUND),
    (ScheduleNotFound, ExitStatus.NOT_FOUND),
    (ApiKeyNotFound, ExitStatus.NOT_FOUND),
    (SessionNotFound, ExitStatus.NOT_FOUND),
    (AlertNotFound, ExitStatus.NOT_FOUND),
    (AlertRuleNotFound, ExitStatus.NOT_FOUND),
    (GradualReviveNotFound, ExitStatus.NOT_FOUND),
    (IllegalTransition, ExitStatus.REFUSED),
    (QueueNotEmpty, ExitStatus.REFUSED),
    (QueueClosed, ExitStatus.REFUSED),
    (QueueFull, ExitStatus.REFUSED),
    (RateLimited, ExitStatus.REFUSED),
    (DuplicateJob, ExitStatus.REFUSED),
    (Forbidden, ExitStatus.REFUSED),
    (Unauthenticated, ExitStatus.BAD_INPUT),
    (ConfigError, ExitStatus.BAD_INPUT),
    (InvalidJob, ExitStatus.BAD_INPUT),
    (UnknownTask, ExitStatus.BAD_INPUT),
    (StoreRefused, ExitStatus.BAD_INPUT),  # a value that no store of this kind can hold
    (
        StoreBusy,
        ExitStatus.REFUSED,
    ),  # another transaction has locked the job or the key; the store is available
    (StoreError, ExitStatus.NO_STORE),
    (TimeoutError, ExitStatus.TIMED_OUT),
    (WorkersDied, ExitStatus.GAVE_UP),
    (CommandInterrupted, ExitStatus.INTERRUPTED),
)


def interrupt_error(error: BaseException) -> ForebayError:
    """Return the error of an interrupted command; click raises the same for Ctrl-C and Ctrl-D."""
    if isinstance(error.__context__, EOFError):
        return CommandDeclined("nothing was done")
    return CommandInterrupted("interrupted")


def build_exit(error: Exception, *, as_json: bool) -> click.exceptions.Exit:
    """Print an error on standard error; return the exception that exits with its status."""
    status, message = status_of(error), redact(str(error))
    if as_json:
        _print_json_error(kind_of(error), message, status)
    else:
        if isinstance(error, BrokenApp):
            lines = traceback.format_exception(error.__cause__)
            click.echo(redact("".join(lines)), err=True, nl=False)
        click.echo(f"Error: {message}", err=True)
        if step := remedy_of(error):
            click.echo(f"       → {redact(step)}", err=True)
    return click.exceptions.Exit(status)


def remedy_of(error: Exception) -> str:
    """Return the remedy for an error whose message has none because programs read it too."""
    if isinstance(error, StoreUnavailable) and _UNREACHABLE in str(error):
        return "Check that it runs, its host and port, and firewalls in between."
    if isinstance(error, StoreUnusable) and _UNKNOWN_USER in str(error):
        return "Check the user and the password in the URL; escape signs such as @ as %40."
    if isinstance(error, Unauthenticated):
        return (
            "Set FOREBAY_API_KEY to the token of an API key; `forebay keys create` creates one on the "
            "server's side."
        )
    missing = error.__cause__ if isinstance(error, BrokenApp) else None
    if isinstance(missing, ModuleNotFoundError):
        return f"Install {missing.name}, or use the Python that has it; this one is {sys.executable}."
    return ""


def build_usage_exit(
    error: click.ClickException, *, as_json: bool
) -> click.exceptions.Exit | click.ClickException:
    """Return the exit for wrong arguments; without JSON click prints it with the usage."""
    message = redact(error.format_message() + _usage_hint(error))
    if as_json:
        _print_json_error("UsageError", message, ExitStatus(error.exit_code))
        return click.exceptions.Exit(error.exit_code)
    if message == error.format_message():
        return error
    return click.UsageError(message, ctx=getattr(error, "ctx", None))


def _usage_hint(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.UsageError) and (unknown := _UNKNOWN_COMMAND.match(message)):
        return _suggest_command(unknown[1], error.ctx)
    if isinstance(error, click.NoSuchOption) and not error.option_name.startswith("--"):
        return (
            " A value that begins with - goes after --, as in `enqueue TASK -- -1`; "
            "there it is text, and :=-1 is the number."
        )
    param = error.param if isinstance(error, click.MissingParameter) else None
    return "" if param is None else _MISSING.get(str(param.name), "")


def _suggest_command(name: str, ctx: click.Context | None) -> str:
    """Return similar commands, or where they are listed; newer versions of click suggest by themselves."""
    if ctx is None or not isinstance(ctx.command, click.Group):
        return ""
    near = close_matches(name, ctx.command.list_commands(ctx))
    if near:
        return f" Did you mean {' or '.join(near)}?"
    return f" `{ctx.command_path} --help` lists them."


def _print_json_error(kind: str, message: str, status: ExitStatus) -> None:
    import msgspec  # noqa: PLC0415 - only when something went wrong

    # Arguments may contain bytes that are not text, which JSON cannot encode.
    message = message.encode("utf-8", "backslashreplace").decode()
    error = {"kind": kind, "message": message, "status": int(status)}
    click.echo(msgspec.json.encode({"error": error}), err=True)


def kind_of(error: Exception) -> str:
    """Return the name of an error in JSON."""
    return "ConfigError" if isinstance(error, BrokenApp) else type(error).__name__


def status_of(error: Exception) -> ExitStatus:
    """Return the exit status of an error."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), ExitStatus.BAD_ANSWER)
