"""`forebay keys`: API keys of servers, and their permissions."""

from __future__ import annotations

from typing import Any

import click

from forebay.cli.json_format import iso_instant
from forebay.cli.options import DurationParam, quota_options, with_store, yes_option
from forebay.cli.output import Output, confirm, format_instant, print_table, text
from forebay.cli.redaction import PlainText
from forebay.cli.store_session import StoreSession
from forebay.domain.api_key import ApiKey, KeyPermissions, Quota
from forebay.service.api_keys import ApiKeyAdmin, NewKey, all_keys
from forebay.service.auth import KEY_CACHE_SECONDS

NAME = click.argument("name", metavar="NAME")


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys.

    A role is produce, consume, view, operate or admin. It applies to one queue (produce:mail), to queues with
    a common prefix (produce:mail-*), or to all queues (produce). task:NAME restricts a key to tasks, and
    limit:KIND=VALUE lets its jobs count under a limit by key. Both may end in a *.
    """


@keys.command("create")
@NAME
@click.option(
    "--allow",
    "grants",
    metavar="ROLE[:QUEUES]|task:NAME|limit:KIND=VALUE",
    multiple=True,
    required=True,
    help="What the key may do; may be repeated.",
)
@click.option(
    "--expires", "lasts_ms", type=DurationParam(), help="The key is invalid after this time, such as 90d."
)
@click.option("--rate", type=int, help="Requests per second; default: that of the server.")
@click.option("--burst", type=int, help="Requests at once; default: twice the rate.")
@quota_options("with this key; default: that of the server")
@with_store(create=True)
def create_key(
    session: StoreSession,
    out: Output,
    name: str,
    grants: tuple[str, ...],
    lasts_ms: int | None,
    rate: int | None,
    burst: int | None,
    **quota: int | None,
) -> None:
    """Create a key and show its token once: the store holds only a hash of it."""
    allowed: dict[str, Any] = KeyPermissions.parse(grants)._asdict()
    new_key = _open_key_admin(session).create(
        name, **allowed, lasts_ms=lasts_ms, rate=rate, burst=burst, quota=Quota(**quota)
    )
    _print_token(session, out, new_key, "created")


@keys.command("list")
@with_store()
def list_keys(session: StoreSession, out: Output) -> None:
    """List all keys, including expired and revoked ones."""
    now = session.reader.now()
    keys = [stored.key for stored in all_keys(session.reader)]

    def print_text() -> None:
        rows = [
            (
                key.name,
                key.state(now),
                str(key.permissions),
                format_instant(key.expires_at),
                _format_last_used(key),
            )
            for key in keys
        ]
        print_table(("name", "state", "allows", "expires", "last used"), rows)

    out.print_result({"keys": [key_json(key, now) for key in keys]}, print_text)


@keys.command("show")
@NAME
@with_store()
def show_key(session: StoreSession, out: Output, name: str) -> None:
    """Show a key and its permissions."""
    fields = key_json(_open_key_admin(session).get(name), session.reader.now())
    shown = [
        (field, ", ".join(value) if isinstance(value, list) else value) for field, value in fields.items()
    ]
    out.print_result(fields, lambda: print_table(("", name), shown))


@keys.command("rotate")
@NAME
@click.option(
    "--grace",
    type=DurationParam(),
    default="0s",
    show_default=True,
    help="How long the old token stays valid.",
)
@with_store()
def rotate_key(session: StoreSession, out: Output, name: str, grace: int) -> None:
    """Replace the secret of a key, and show its new token once."""
    _print_token(session, out, _open_key_admin(session).rotate(name, grace_ms=grace), "rotated")


@keys.command("revoke")
@NAME
@yes_option
@with_store()
def revoke_key(session: StoreSession, out: Output, name: str, yes: bool) -> None:
    """Revoke a key."""
    _open_key_admin(session).get(name)
    confirm(f"Revoke key {name} in {session.name}?", yes=yes)
    key = _open_key_admin(session).revoke(name)
    out.print_message(
        key_json(key, session.reader.now()),
        f"key {name} revoked; servers follow within {KEY_CACHE_SECONDS:g} s",
    )


def key_json(key: ApiKey, now: int) -> dict[str, Any]:
    """Return a key without its secret."""
    fields = {
        name: iso_instant(value) if name.endswith(("_at", "_until")) and isinstance(value, int) else value
        for name, value in key.public_view().items()
    }
    return {**fields, "state": key.state(now)}


def _open_key_admin(session: StoreSession) -> ApiKeyAdmin:
    return ApiKeyAdmin(session.store, session.reader, actor=session.actor)


def _print_token(session: StoreSession, out: Output, new_key: NewKey, past: str) -> None:
    def print_text() -> None:
        click.echo(text(f"key {new_key.key.name} {past}; its token is shown only once:"))
        click.echo(new_key.token)

    out.print_result(
        {**key_json(new_key.key, session.reader.now()), "token": PlainText(new_key.token)}, print_text
    )


def _format_last_used(key: ApiKey) -> str:
    return "never" if key.used_at is None else format_instant(key.used_at)
