"""`forebay sessions`: who is logged in to the dashboard."""

from __future__ import annotations

from typing import Any

import click

from forebay.cli.opening import Desk
from forebay.cli.options import at_store, yes_option
from forebay.cli.output import Output, confirm, moment, table
from forebay.cli.shapes import iso
from forebay.errors import ConfigError
from forebay.service.sessions import SEEN_SECONDS, Kept, Sessions

COLUMNS = ("id", "name", "began", "last used", "ends")


@click.group()
def sessions() -> None:
    """List and revoke logins to the dashboard.

    A session ends by itself when it is not used for a while, and with its API key.
    """


@sessions.command("list")
@at_store()
def list_sessions(desk: Desk, out: Output) -> None:
    """List sessions that have not come to their end, the newest first."""
    found = _sessions(desk).active()

    def people() -> None:
        rows = [
            (kept.short, one.name, moment(one.created_at), moment(one.used_at), moment(one.ends_at))
            for kept in found
            for one in (kept.session,)
        ]
        table(COLUMNS, rows)

    out.answer({"sessions": [session_json(kept) for kept in found]}, people)


@sessions.command("revoke")
@click.argument("session_id", metavar="ID", required=False)
@click.option("--name", metavar="NAME", help="All sessions of this API key or person.")
@click.option("--all", "is_all", is_flag=True, help="All sessions of this store.")
@yes_option
@at_store()
def revoke_session(
    desk: Desk, out: Output, session_id: str | None, name: str | None, is_all: bool, yes: bool
) -> None:
    """End a session, those of a name, or all."""
    if (session_id is not None) + (name is not None) + is_all != 1:
        raise ConfigError("name one of these: the ID of a session, --name NAME, or --all")
    what = f"session {session_id}" if session_id else f"all sessions of {name}" if name else "all sessions"
    confirm(f"Revoke {what} in {desk.name}?", yes=yes)
    known = _sessions(desk)
    gone = [known.revoke(session_id)] if session_id is not None else known.revoke_of(name)
    out.say(
        {"revoked": [session_json(kept) for kept in gone]},
        f"{len(gone)} {'session' if len(gone) == 1 else 'sessions'} revoked; "
        f"servers know within {SEEN_SECONDS:g} s",
    )


def session_json(kept: Kept) -> dict[str, Any]:
    """A session without its digest."""
    one = kept.session
    times = {"created_at": one.created_at, "used_at": one.used_at, "ends_at": one.ends_at}
    return {
        "id": kept.short,
        "name": one.name,
        "grants": [str(grant) for grant in one.grants],
        **{field: iso(value) for field, value in times.items()},
    }


def _sessions(desk: Desk) -> Sessions:
    return Sessions(desk.store, desk.reader, actor=desk.actor)
