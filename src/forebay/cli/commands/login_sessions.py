"""`forebay sessions`: logins to the dashboard."""

from __future__ import annotations

from typing import Any

import click

from forebay.cli.json_format import iso_instant
from forebay.cli.options import with_store, yes_option
from forebay.cli.output import Output, confirm, format_instant, print_table
from forebay.cli.store_session import StoreSession
from forebay.errors import ConfigError
from forebay.service.browser_sessions import SESSION_CACHE_SECONDS, SessionAdmin, StoredSession

COLUMNS = ("id", "name", "started", "last used", "expires")


@click.group()
def sessions() -> None:
    """List and revoke logins to the dashboard.

    A session expires when it is not used for a while, and with its API key.
    """


@sessions.command("list")
@with_store()
def list_sessions(session: StoreSession, out: Output) -> None:
    """List active sessions, newest first."""
    found = _open_session_admin(session).list_active()

    def print_text() -> None:
        rows = [
            (
                stored.short,
                login.name,
                format_instant(login.created_at),
                format_instant(login.used_at),
                format_instant(login.ends_at),
            )
            for stored in found
            for login in (stored.session,)
        ]
        print_table(COLUMNS, rows)

    out.print_result({"sessions": [session_json(stored) for stored in found]}, print_text)


@sessions.command("revoke")
@click.argument("session_id", metavar="ID", required=False)
@click.option("--name", metavar="NAME", help="All sessions of this API key or person.")
@click.option("--all", "is_all", is_flag=True, help="All sessions of this store.")
@yes_option
@with_store()
def revoke_session(
    session: StoreSession, out: Output, session_id: str | None, name: str | None, is_all: bool, yes: bool
) -> None:
    """Revoke a session, the sessions of a name, or all."""
    if (session_id is not None) + (name is not None) + is_all != 1:
        raise ConfigError("name one of these: the ID of a session, --name NAME, or --all")
    selected = (
        f"session {session_id}" if session_id else f"all sessions of {name}" if name else "all sessions"
    )
    confirm(f"Revoke {selected} in {session.name}?", yes=yes)
    admin = _open_session_admin(session)
    revoked = [admin.revoke(session_id)] if session_id is not None else admin.revoke_all(name)
    out.print_message(
        {"revoked": [session_json(stored) for stored in revoked]},
        f"{len(revoked)} {'session' if len(revoked) == 1 else 'sessions'} revoked; "
        f"servers follow within {SESSION_CACHE_SECONDS:g} s",
    )


def session_json(stored: StoredSession) -> dict[str, Any]:
    """Return a session without its digest."""
    login = stored.session
    times = {"created_at": login.created_at, "used_at": login.used_at, "ends_at": login.ends_at}
    return {
        "id": stored.short,
        "name": login.name,
        "grants": [str(grant) for grant in login.grants],
        **{field: iso_instant(value) for field, value in times.items()},
    }


def _open_session_admin(session: StoreSession) -> SessionAdmin:
    return SessionAdmin(session.store, session.reader, actor=session.actor)
