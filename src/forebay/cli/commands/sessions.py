"""`forebay sessions`: who is logged in to the dashboard."""

from __future__ import annotations

from typing import Any

import click

from forebay.cli.json_format import iso_instant
from forebay.cli.options import with_store, yes_option
from forebay.cli.output import Output, confirm, format_instant, print_table
from forebay.cli.store_session import StoreSession
from forebay.errors import ConfigError
from forebay.service.sessions import SESSION_CACHE_SECONDS, SessionAdmin, StoredSession

COLUMNS = ("id", "name", "began", "last used", "ends")


@click.group()
def sessions() -> None:
    """List and revoke logins to the dashboard.

    A session ends by itself when it is not used for a while, and with its API key.
    """


@sessions.command("list")
@with_store()
def list_sessions(session: StoreSession, out: Output) -> None:
    """List sessions that have not come to their end, the newest first."""
    found = _open_session_admin(session).list_active()

    def people() -> None:
        rows = [
            (
                kept.short,
                one.name,
                format_instant(one.created_at),
                format_instant(one.used_at),
                format_instant(one.ends_at),
            )
            for kept in found
            for one in (kept.session,)
        ]
        print_table(COLUMNS, rows)

    out.print_result({"sessions": [session_json(kept) for kept in found]}, people)


@sessions.command("revoke")
@click.argument("session_id", metavar="ID", required=False)
@click.option("--name", metavar="NAME", help="All sessions of this API key or person.")
@click.option("--all", "is_all", is_flag=True, help="All sessions of this store.")
@yes_option
@with_store()
def revoke_session(
    session: StoreSession, out: Output, session_id: str | None, name: str | None, is_all: bool, yes: bool
) -> None:
    """End a session, those of a name, or all."""
    if (session_id is not None) + (name is not None) + is_all != 1:
        raise ConfigError("name one of these: the ID of a session, --name NAME, or --all")
    what = f"session {session_id}" if session_id else f"all sessions of {name}" if name else "all sessions"
    confirm(f"Revoke {what} in {session.name}?", yes=yes)
    known = _open_session_admin(session)
    gone = [known.revoke(session_id)] if session_id is not None else known.revoke_all(name)
    out.print_message(
        {"revoked": [session_json(kept) for kept in gone]},
        f"{len(gone)} {'session' if len(gone) == 1 else 'sessions'} revoked; "
        f"servers know within {SESSION_CACHE_SECONDS:g} s",
    )


def session_json(stored: StoredSession) -> dict[str, Any]:
    """A session without its digest."""
    one = stored.session
    times = {"created_at": one.created_at, "used_at": one.used_at, "ends_at": one.ends_at}
    return {
        "id": stored.short,
        "name": one.name,
        "grants": [str(grant) for grant in one.grants],
        **{field: iso_instant(value) for field, value in times.items()},
    }


def _open_session_admin(session: StoreSession) -> SessionAdmin:
    return SessionAdmin(session.store, session.reader, actor=session.actor)
