"""The command tree."""

from __future__ import annotations

import click

from forebay import __version__
from forebay.cli.lazy_group import LazyGroup

COMMANDS = {
    "init": (
        "forebay.cli.commands.init:init",
        "Write a small project that works: tasks, a schedule, tests, and what to do next.",
    ),
    "dev": (
        "forebay.cli.dev.command:dev",
        "Run a worker, the service and its dashboard in one terminal, for development.",
    ),
    "worker": ("forebay.cli.commands.worker:worker", "Run the jobs of an app until a signal says stop."),
    "enqueue": ("forebay.cli.commands.enqueue:enqueue", "Ask for a task to be run."),
    "jobs": ("forebay.cli.commands.jobs:jobs", "List, show, cancel, revive, delete, search and await jobs."),
    "queues": (
        "forebay.cli.commands.queues:queues",
        "List, create, configure, pause, drain and delete queues.",
    ),
    "limits": (
        "forebay.cli.commands.limits:limits",
        "List, set and remove limits on jobs that run and start.",
    ),
    "schedules": (
        "forebay.cli.commands.schedules:schedules",
        "List, show, add, pause, fire and remove schedules.",
    ),
    "scheduler": ("forebay.cli.commands.scheduler:scheduler", "Fire schedules until a signal says stop."),
    "outbox": ("forebay.cli.commands.outbox:outbox", "Carry jobs from an outbox to the store."),
    "server": (
        "forebay.cli.commands.server:server",
        "Serve jobs over HTTP, and gRPC, until a signal says stop.",
    ),
    "dead": ("forebay.cli.commands.dead:dead", "Look at the dead letters, revive or purge them."),
    "gradual-revives": (
        "forebay.cli.commands.gradual_revives:gradual_revives",
        "Revive dead letters in batches that grow while they do well.",
    ),
    "workers": (
        "forebay.cli.commands.workers:workers",
        "List workers, look into them, pause, resume and stop them.",
    ),
    "stats": (
        "forebay.cli.commands.stats:stats",
        "Jobs by queue and state, what became of them lately, and who works on them.",
    ),
    "top": (
        "forebay.cli.top.command:top",
        "Show queues, workers, running jobs and the newest failures, live in a terminal.",
    ),
    "inspect": ("forebay.cli.commands.queues:inspect", "Show one queue and the jobs that come next."),
    "stuck": ("forebay.cli.commands.stats:stuck", "List jobs that have been running for too long."),
    "alerts": (
        "forebay.cli.commands.alerts:alerts",
        "List alerts, acknowledge them, and say when there are some.",
    ),
    "keys": ("forebay.cli.commands.keys:keys", "Create, list, rotate and revoke the API keys of servers."),
    "sessions": ("forebay.cli.commands.sessions:sessions", "List and revoke logins to the dashboard."),
    "audit": ("forebay.cli.commands.audit:audit", "Show the audit log, newest first."),
    "sweep": (
        "forebay.cli.commands.sweep:sweep",
        "Settle attempts whose worker is dead or whose lease has ended.",
    ),
    "migrate": ("forebay.cli.commands.migrate:migrate", "Create the store or bring its schema up to date."),
    "move": (
        "forebay.cli.commands.move:move",
        "Move jobs, schedules, limits, keys and settings to another store.",
    ),
    "import": (
        "forebay.cli.commands.import_jobs:import_jobs",
        "Bring jobs that wait in Celery, RQ or Huey to a store of ours.",
    ),
    "doctor": ("forebay.cli.doctor.command:doctor", "Look for what is wrong, and say what to do about it."),
    "completion": (
        "forebay.cli.commands.completion:completion",
        "Print the script that completes commands in a shell.",
    ),
    "version": (
        "forebay.cli.commands.version:version",
        "Show the versions of Forebay, of Python, of SQLite and of what else it uses.",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", help="Settings to read instead of forebay.toml and pyproject.toml.")
@click.version_option(__version__)
@click.pass_context
def main(ctx: click.Context, config: str | None) -> None:
    """Forebay, a background job queue.

    Commands find their store by --url or --app, by FOREBAY_URL or FOREBAY_APP, or by url or app in
    forebay.toml or under [tool.forebay] in pyproject.toml; the first of these counts. With --json they
    answer to programs.
    """
    ctx.obj = config
    if ctx.invoked_subcommand in ("worker", "dev"):
        from forebay.cli.settings import read_settings  # noqa: PLC0415 - `forebay --help` stays quick

        defaults = read_settings(config=config).worker_defaults()
        # What `dev` starts reads the settings by itself; it has to know whose they are.
        known = {"app": defaults["app"]} if "app" in defaults else {}
        ctx.default_map = {"worker": defaults, "dev": known}
