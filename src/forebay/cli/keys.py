"""`forebay keys`: who may use a server, and for what."""

from __future__ import annotations

from typing import Any

import click

from forebay.cli.opening import Desk
from forebay.cli.options import Length, at_store, quota_options, yes_option
from forebay.cli.output import Output, confirm, moment, table, text
from forebay.cli.redacting import Shown
from forebay.cli.shapes import iso
from forebay.domain.access import Allowed, ApiKey, Quota
from forebay.service.auth import SEEN_SECONDS
from forebay.service.keys import Keys, Made, all_keys

NAME = click.argument("name", metavar="NAME")


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke the API keys of servers.

    A role is produce, consume, view, operate or admin. It holds for one queue (produce:mail), for those
    whose names begin alike (produce:mail-*), or for all (produce). task:NAME restricts a key to tasks, and
    limit:KIND=VALUE lets its jobs count under a limit by key; both may end in a *.
    """


@keys.command("create")
@NAME
@click.option(
    "--allow",
    "grants",
    metavar="ROLE[:QUEUES]|task:NAME|limit:KIND=VALUE",
    multiple=True,
    required=True,
    help="What it is for; may be repeated.",
)
@click.option("--expires", "lasts_ms", type=Length(), help="It opens nothing after this time, such as 90d.")
@click.option("--rate", type=int, help="So many requests a second; else what the server allows.")
@click.option("--burst", type=int, help="So many requests at once; else twice the rate.")
@quota_options("with it; else what the server allows")
@at_store(create=True)
def create_key(
    desk: Desk,
    out: Output,
    name: str,
    grants: tuple[str, ...],
    lasts_ms: int | None,
    rate: int | None,
    burst: int | None,
    **quota: int | None,
) -> None:
    """Make a key and show its token, once: the store keeps only a hash of it."""
    allowed: dict[str, Any] = Allowed.parse(grants)._asdict()
    made = _keys(desk).create(
        name, **allowed, lasts_ms=lasts_ms, rate=rate, burst=burst, quota=Quota(**quota)
    )
    _show_token(desk, out, made, "created")


@keys.command("list")
@at_store()
def list_keys(desk: Desk, out: Output) -> None:
    """List all keys, also those that open nothing any more."""
    now = desk.reader.now()
    found = [kept.key for kept in all_keys(desk.reader)]

    def people() -> None:
        rows = [
            (key.name, key.state(now), str(key.allowed), moment(key.expires_at), _used(key)) for key in found
        ]
        table(("name", "state", "allows", "expires", "last used"), rows)

    out.answer({"keys": [key_json(key, now) for key in found]}, people)


@keys.command("show")
@NAME
@at_store()
def show_key(desk: Desk, out: Output, name: str) -> None:
    """Show what a key is for."""
    fields = key_json(_keys(desk).get(name), desk.reader.now())
    shown = [
        (field, ", ".join(value) if isinstance(value, list) else value) for field, value in fields.items()
    ]
    out.answer(fields, lambda: table(("", name), shown))


@keys.command("rotate")
@NAME
@click.option(
    "--grace", type=Length(), default="0s", show_default=True, help="The old one opens for so long."
)
@at_store()
def rotate_key(desk: Desk, out: Output, name: str, grace: int) -> None:
    """Give a key another secret, and show its new token, once."""
    _show_token(desk, out, _keys(desk).rotate(name, grace_ms=grace), "rotated")


@keys.command("revoke")
@NAME
@yes_option
@at_store()
def revoke_key(desk: Desk, out: Output, name: str, yes: bool) -> None:
    """Let a key open nothing any more."""
    _keys(desk).get(name)
    confirm(f"Revoke key {name} in {desk.name}?", yes=yes)
    key = _keys(desk).revoke(name)
    out.say(key_json(key, desk.reader.now()), f"key {name} revoked; servers know within {SEEN_SECONDS:g} s")


def key_json(key: ApiKey, now: int) -> dict[str, Any]:
    """A key without its secret."""
    fields = {
        name: iso(value) if name.endswith(("_at", "_until")) and isinstance(value, int) else value
        for name, value in key.shown().items()
    }
    return {**fields, "state": key.state(now)}


def _keys(desk: Desk) -> Keys:
    return Keys(desk.store, desk.reader, actor=desk.actor)


def _show_token(desk: Desk, out: Output, made: Made, past: str) -> None:
    def people() -> None:
        click.echo(text(f"key {made.key.name} {past}; its token is shown this once:"))
        click.echo(made.token)

    out.answer({**key_json(made.key, desk.reader.now()), "token": Shown(made.token)}, people)


def _used(key: ApiKey) -> str:
    return "never" if key.used_at is None else moment(key.used_at)
