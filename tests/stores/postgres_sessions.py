"""Sessions of a PostgreSQL server that stay for the next test.

A new session reads the catalogue and plans every statement anew, which takes longer than most tests. Handles
are new in each test all the same: whatever they know, they have to find out.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from typing import Final

import psycopg
from psycopg.pq import TransactionStatus

from forebay.stores.postgres.connection import Connection, Raw
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.schema_setup_and_check import open_schema
from forebay.stores.postgres.server_address import PostgresAddress

# Statements that a handle has prepared by hand; the driver's own stay, and it knows them.
_FORGET: Final = """
do $$
declare
  mine text;
begin
  for mine in select name from pg_prepared_statements where name like 'forebay%' loop
    execute format('deallocate %I', mine);
  end loop;
end $$
"""
# By process as well: after a fork they are the parent's.
_kept: Final[defaultdict[tuple[int, PostgresAddress, bool], list[Raw]]] = defaultdict(list)


class _Connection(Connection):
    """A connection that goes on with the session of one that was closed in good order."""

    @property
    def _others(self) -> list[Raw]:
        return _kept[os.getpid(), self.address, self._reads]

    def _connect(self) -> Raw:
        with suppress(IndexError):  # there is none left; other threads take from them too
            while True:
                raw = self._others.pop()
                with suppress(psycopg.Error):  # a test may end all sessions
                    raw.execute(_FORGET, prepare=False)
                    return raw
                raw.close()
        return super()._connect()

    def close(self) -> None:
        raw = self._raw
        is_own = self._pid == os.getpid()
        if raw is not None and is_own and raw.pgconn.transaction_status == TransactionStatus.IDLE:
            self._raw = None
            self._others.append(raw)
        else:
            super().close()


class KeepingEngine(PostgresEngine):
    """An engine whose handles leave their sessions to those of the next test."""

    def _connect(self, *, reads: bool) -> Connection:
        connection = _Connection(self.address, reads=reads)
        open_schema(connection, self._statements)
        return connection


def end_kept() -> None:
    """Close the unused sessions of this process."""
    for (pid, _, _), sessions in _kept.items():
        while sessions and pid == os.getpid():
            sessions.pop().close()
