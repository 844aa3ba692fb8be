"""The command tree."""

from __future__ import annotations

import click

from forebay import __version__
from forebay.cli.lazy_group import LazyGroup

COMMANDS = {
    "init": (
        "forebay.cli.commands.init:init",
        "Write a small project that works: tasks, a schedule, tests, and the next steps.",
    ),
    "dev": (
        "forebay.cli.dev.command:dev",
        "Run a worker, the service and its dashboard in one terminal, for development.",
    ),
    "worker": ("forebay.cli.commands.run_worker:worker", "Run the jobs of an app until a stop signal."),
    "enqueue": ("forebay.cli.commands.enqueue:enqueue", "Enqueue a job."),
    "jobs": ("forebay.cli.commands.jobs:jobs", "List, show, cancel, revive, delete, search and await jobs."),
    "queues": (
        "forebay.cli.commands.queues:queues",
        "List, create, configure, pause, drain and delete queues.",
    ),
    "limits": (
        "forebay.cli.commands.limits:limits",
        "List, set and remove limits on concurrency and rate.",
    ),
    "schedules": (
        "forebay.cli.commands.schedules:schedules",
        "List, show, add, pause, fire and remove schedules.",
    ),
    "scheduler": ("forebay.cli.commands.run_scheduler:scheduler", "Fire schedules until a stop signal."),
    "outbox": ("forebay.cli.commands.outbox:outbox", "Relay jobs from an outbox table to the store."),
    "server": (
        "forebay.cli.commands.run_server:server",
        "Serve jobs over HTTP and gRPC until a stop signal.",
    ),
    "dead": ("forebay.cli.commands.dead_letters:dead", "List, show, revive and purge dead letters."),
    "gradual-revives": (
        "forebay.cli.commands.gradual_revives:gradual_revives",
        "Revive dead letters in growing batches while they succeed.",
    ),
    "workers": (
        "forebay.cli.commands.worker_admin:workers",
        "List, inspect, pause, resume and stop workers.",
    ),
    "stats": (
        "forebay.cli.commands.stats:stats",
        "Show jobs by queue and state, recent rates, and the workers.",
    ),
    "top": (
        "forebay.cli.top.command:top",
        "Show queues, workers, running jobs and the newest failures, live in a terminal.",
    ),
    "inspect": ("forebay.cli.commands.queues:inspect", "Show one queue and its next jobs."),
    "stuck": ("forebay.cli.commands.stuck_jobs:stuck", "List jobs that have been running for too long."),
    "alerts": (
        "forebay.cli.commands.alerts:alerts",
        "List and acknowledge alerts, and edit their rules and channels.",
    ),
    "keys": ("forebay.cli.commands.api_keys:keys", "Create, list, rotate and revoke API keys."),
    "sessions": ("forebay.cli.commands.login_sessions:sessions", "List and revoke logins to the dashboard."),
    "audit": ("forebay.cli.commands.audit:audit", "Show the audit log, newest first."),
    "sweep": (
        "forebay.cli.commands.sweep_leases:sweep",
        "Settle attempts whose worker is dead or whose lease has expired.",
    ),
    "migrate": ("forebay.cli.commands.migrate:migrate", "Create the store or migrate its schema."),
    "move": (
        "forebay.cli.commands.move_store:move",
        "Move jobs, schedules, limits, keys and settings to another store.",
    ),
    "import": (
        "forebay.cli.commands.import_jobs:import_jobs",
        "Import waiting jobs from Celery, RQ or Huey.",
    ),
    "doctor": ("forebay.cli.doctor.command:doctor", "Find problems, and say what to do about them."),
    "completion": (
        "forebay.cli.commands.completion:completion",
        "Print the completion script of a shell.",
    ),
    "version": (
        "forebay.cli.commands.version:version",
        "Show the versions of Forebay, Python, SQLite and the other dependencies.",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", help="Settings to read instead of forebay.toml and pyproject.toml.")
@click.version_option(__version__)
@click.pass_context
def main(ctx: click.Context, config: str | None) -> None:
    """Forebay, a background job queue.

    Commands find their store by --url or --app, by FOREBAY_URL or FOREBAY_APP, or by url or app in
    forebay.toml or under [tool.forebay] in pyproject.toml. The first of these counts. With --json a
    command prints one JSON document.
    """
    ctx.obj = config
    if ctx.invoked_subcommand in ("worker", "dev"):
        from forebay.cli.settings import read_settings  # noqa: PLC0415 - `forebay --help` stays quick

        defaults = read_settings(config=config).worker_defaults()
        # The processes that `dev` starts read the settings themselves; `dev` needs only the app.
        known = {"app": defaults["app"]} if "app" in defaults else {}
        ctx.default_map = {"worker": defaults, "dev": known}
