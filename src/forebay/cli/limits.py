"""`forebay limits`: how many jobs may run at once, and how many may start in a time."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from forebay.app.throttling import Throttle, throttles
from forebay.cli.opening import Desk
from forebay.cli.options import Length, at_store
from forebay.cli.output import Output, table
from forebay.domain.limits import Limit

SCOPE = click.argument("scope", metavar="SCOPE")


@click.group()
def limits() -> None:
    """List, set and remove limits on jobs that run and start.

    A scope is global, for all jobs, queue:NAME, task:NAME, or key:KIND, for each value of a key by itself.
    """


@limits.command("list")
@at_store()
def list_limits(desk: Desk, out: Output) -> None:
    """List all limits, and how they stand."""
    found = throttles(desk.reader)
    out.answer({"limits": [throttle_json(one) for one in found]}, lambda: throttle_table(found))


@limits.command("set")
@SCOPE
@click.option("--concurrency", type=int, help="At most so many run at once.")
@click.option("--rate", type=int, help="At most so many start in the time of --per.")
@click.option("--per", type=Length(), default="1s", show_default=True, help="The time that --rate is for.")
@click.option("--burst", type=int, help="So many may start together after a pause; else twice the rate.")
@at_store(create=True)
def set_limit(desk: Desk, out: Output, scope: str, per: int, **numbers: int | None) -> None:
    """Set the limit of a scope, in the place of another one.

    Workers follow with their next claim. Jobs that run go on, however many they are.
    """
    limit = Limit(scope=scope, per_ms=per, **numbers)
    desk.store.save_limit(limit, actor=desk.actor)
    out.say(limit_json(limit), f"limit of {scope}: {said(limit)}")


@limits.command("remove")
@SCOPE
@at_store()
def remove_limit(desk: Desk, out: Output, scope: str) -> None:
    """Remove the limit of a scope."""
    was_there = desk.store.drop_limit(scope, actor=desk.actor)
    said_so = f"limit of {scope} removed" if was_there else f"there is no limit of {scope}"
    out.say({"scope": scope, "removed": was_there}, said_so)


def limit_json(limit: Limit) -> dict[str, Any]:
    """A limit with the burst that holds."""
    fields: dict[str, Any] = msgspec.to_builtins(limit)
    return {**fields, "burst": limit.most_at_once if limit.rate else None}


def throttle_json(one: Throttle) -> dict[str, Any]:
    """A limit with what runs under it and who waits for it."""
    standing = {"state": one.state, "running": one.usage.running, "tokens": one.usage.tokens}
    return {
        **limit_json(one.usage.limit), **standing, "waiting": one.waiting, "throttled": list(one.throttled)
    }  # fmt: skip


def throttle_table(found: list[Throttle]) -> None:
    table(
        ("scope", "limit", "state", "running", "tokens", "waiting", "throttled workers"),
        [
            (
                *(one.usage.limit.scope, said(one.usage.limit), one.state, one.usage.running),
                *("" if one.usage.tokens is None else one.usage.tokens, one.waiting, len(one.throttled)),
            )
            for one in found
        ],
    )


def said(limit: Limit) -> str:
    """A limit in words."""
    parts = [] if limit.concurrency is None else [f"{limit.concurrency} at once"]
    if limit.rate is not None:
        time = "second" if limit.per_ms == 1_000 else f"{limit.per_ms / 1_000:g} s"  # noqa: PLR2004 - a second
        parts.append(f"{limit.rate} per {time}, up to {limit.most_at_once} together")
    return "; ".join(parts)
