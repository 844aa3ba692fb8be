"""`forebay limits`: limits on concurrency and rate."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from forebay.cli.options import DurationParam, with_store
from forebay.cli.output import Output, print_table
from forebay.cli.store_session import StoreSession
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.operations.limit_status import LimitStatus, limit_statuses

SCOPE = click.argument("scope", metavar="SCOPE")


@click.group()
def limits() -> None:
    """List, set and remove limits on concurrency and rate.

    A scope is global for all jobs, queue:NAME, task:NAME, or key:KIND for each value of a key by itself.
    """


@limits.command("list")
@with_store()
def list_limits(session: StoreSession, out: Output) -> None:
    """List all limits and their usage."""
    statuses = limit_statuses(session.reader)
    out.print_result(
        {"limits": [limit_status_json(status) for status in statuses]}, lambda: print_limit_statuses(statuses)
    )


@limits.command("set")
@SCOPE
@click.option("--concurrency", type=int, help="Jobs that may run at once.")
@click.option("--rate", type=int, help="Jobs that may start in the time of --per.")
@click.option("--per", type=DurationParam(), default="1s", show_default=True, help="The period of --rate.")
@click.option(
    "--burst", type=int, help="Jobs that may start together after a pause; default: twice the rate."
)
@with_store(create=True)
def set_limit(session: StoreSession, out: Output, scope: str, per: int, **numbers: int | None) -> None:
    """Set the limit of a scope; it replaces an earlier status.

    Workers follow with their next claim. Running jobs continue, even above the limit.
    """
    limit = Limit(scope=scope, per_ms=per, **numbers)
    session.store.save_limit(limit, actor=session.actor)
    out.print_message(limit_json(limit), f"limit of {scope}: {format_limit(limit)}")


@limits.command("remove")
@SCOPE
@with_store()
def remove_limit(session: StoreSession, out: Output, scope: str) -> None:
    """Remove the limit of a scope."""
    was_there = session.store.drop_limit(scope, actor=session.actor)
    message = f"limit of {scope} removed" if was_there else f"there is no limit of {scope}"
    out.print_message({"scope": scope, "removed": was_there}, message)


def limit_json(limit: Limit) -> dict[str, Any]:
    """Return a limit with its effective burst."""
    fields: dict[str, Any] = msgspec.to_builtins(limit)
    return {**fields, "burst": limit.burst_size if limit.rate else None}


def limit_status_json(status: LimitStatus) -> dict[str, Any]:
    """Return a limit with its usage, waiting jobs and waiting workers."""
    usage = {"state": status.state, "running": status.usage.running, "tokens": status.usage.tokens}
    return {
        **limit_json(status.usage.limit),
        **usage,
        "waiting": status.waiting,
        "waiting_workers": list(status.waiting_workers),
    }


def print_limit_statuses(statuses: list[LimitStatus]) -> None:
    print_table(
        ("scope", "limit", "state", "running", "tokens", "waiting", "waiting workers"),
        [
            (
                *(
                    status.usage.limit.scope,
                    format_limit(status.usage.limit),
                    status.state,
                    status.usage.running,
                ),
                *(
                    "" if status.usage.tokens is None else status.usage.tokens,
                    status.waiting,
                    len(status.waiting_workers),
                ),
            )
            for status in statuses
        ],
    )


def format_limit(limit: Limit) -> str:
    """Return a limit in words."""
    parts = [] if limit.concurrency is None else [f"{limit.concurrency} at once"]
    if limit.rate is not None:
        time = "second" if limit.per_ms == 1_000 else f"{limit.per_ms / 1_000:g} s"  # noqa: PLR2004 - a second
        parts.append(f"{limit.rate} per {time}, up to {limit.burst_size} together")
    return "; ".join(parts)
