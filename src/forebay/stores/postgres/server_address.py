"""Address of a PostgreSQL server, with the settings of the store URL."""

from __future__ import annotations

import re
from math import ceil
from typing import Final

import msgspec
import psycopg

from forebay.errors import ConfigError

CONNECT_SECONDS: Final = 10
# Seconds without a response. A running server ends a statement before that.
ANSWER_SECONDS: Final = 35.0


class PostgresAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Address of a store with its connection options.

    `pooled` means a pooler that gives each transaction to any session: then no state may stay in a session,
    and no statement is prepared. A server is given up after `response_timeout` seconds without a response.
    """

    dsn: str
    schema: str = "forebay"
    pooled: bool = False
    notifies: bool = True
    response_timeout: float = ANSWER_SECONDS

    @property
    def location(self) -> str:
        """One text for all addresses of one store; without user and password."""
        parts = psycopg.conninfo.conninfo_to_dict(self.dsn)
        database = parts.get("dbname") or parts.get("user") or ""
        server = f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}"
        return f"postgresql://{server}/{database}?schema={self.schema}"

    @property
    def connect_timeout(self) -> int:
        """Seconds for connecting to each host."""
        return min(CONNECT_SECONDS, ceil(self.response_timeout))

    @property
    def statement_timeout(self) -> str:
        """Statement timeout: less than the response timeout, so that a running server ends the statement."""
        return f"{max(self.response_timeout - 5, self.response_timeout / 2) * 1_000:.0f}ms"

    @property
    def application(self) -> str:
        """Name of the sessions on the server, which distinguishes stores of one database."""
        return "forebay" if self.schema == "forebay" else f"forebay {self.schema}"

    @property
    def channel(self) -> str:
        """NOTIFY channel of the wake-ups of this store."""
        return f"forebay:{self.schema}"[:63]


def address_of(
    dsn: str,
    safe_url: str,
    schema: str = "forebay",
    pooler: str = "session",
    notify: str | None = None,
    response_timeout: float = ANSWER_SECONDS,
) -> PostgresAddress:
    """Return the address for the options of a URL; raise ConfigError for invalid ones.

    Behind a transaction pooler LISTEN does not work, so nothing is sent there unless `notify` is on.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,54}", schema):
        raise ConfigError(
            f"{safe_url!r}: schema must be 1 to 55 letters, digits and underscores, and not begin "
            f"with a digit"
        )
    if pooler not in ("session", "transaction"):
        raise ConfigError(f"{safe_url!r}: pooler must be session or transaction")
    if notify not in ("on", "off", None):
        raise ConfigError(f"{safe_url!r}: notify must be on or off")
    try:
        psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as exc:
        # Not chained, and quoted only if it names an option: the message may hold the password. An option may
        # hold it too, if there is an @ behind the ?: it belongs to a password that was not escaped.
        has_sign = "%40" in dsn.partition("?")[2]
        option = None if has_sign else re.match(r"invalid URI query parameter: .*", str(exc))
        hint = option[0] if option else "write postgresql://user:password@host:port/database"
        raise ConfigError(f"{safe_url!r} is not an address of PostgreSQL: {hint}") from None
    is_pooled = pooler == "transaction"
    return PostgresAddress(
        dsn=dsn,
        schema=schema,
        pooled=is_pooled,
        notifies=not is_pooled if notify is None else notify == "on",
        response_timeout=response_timeout,
    )
