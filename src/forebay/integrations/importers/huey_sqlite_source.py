"""Huey's tasks in a SQLite file: the tables `task` and `schedule`, and revocations in `kv`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from forebay.errors import ConfigError, StoreError, StoreUnavailable, StoreUnusable
from forebay.integrations.importers.huey_message import SYSTEM
from forebay.integrations.importers.huey_options import HueyReadOptions, new_token
from forebay.integrations.importers.huey_revocation import make_revoked, revocation_keys
from forebay.integrations.importers.rq_message import NO_RETRY
from forebay.integrations.importers.source import PAGE_SIZE, ForeignJob, FoundJob, ImportCandidate, SkippedJob

_COUNT: Final = ("select count(*) from task where ", "select count(*) from schedule where ")
# Messages that are about to be stored elsewhere. The number of a row does not identify a message: it is used
# again.
_NOTES: Final = "create table if not exists forebay_import (key text not null, word text not null)"
_HAS_NOTES: Final = "select 1 from sqlite_master where type = 'table' and name = 'forebay_import'"
_FIRST_NOTE: Final = "select 1 from forebay_import limit 1"


class HueyRow(NamedTuple):
    """A message in a table; `key` and `token` once it has been noted."""

    table: str
    number: int
    key: str = ""
    token: str = ""


class HueySqliteSource:
    """Tasks of Huey in a SQLite file."""

    system: Final = SYSTEM
    default_policy: Final = NO_RETRY
    distinguishes_copies: Final = True

    def __init__(self, path: str, options: HueyReadOptions) -> None:
        self._options = options
        self._path = path
        if not Path(path).is_file():
            raise StoreUnusable(f"there is no file {path}")
        # Not to be created: a mistyped name would look like an empty queue.
        self._file = sqlite3.connect(
            f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=30
        )
        with self._connection() as file:
            tables = {name for (name,) in file.execute("select name from sqlite_master where type = 'table'")}
        if not {"task", "schedule", "kv"} <= tables:
            self.close()
            raise ConfigError(f"{path} holds no tasks of Huey: it has no tables task, schedule and kv")

    def busy(self) -> str:
        return ""  # a file does not tell which programs use it

    def count(self) -> int:
        with self._connection() as file:
            return sum(
                file.execute(count + self._where(), self._options.only).fetchone()[0] for count in _COUNT
            )

    def pages(self) -> Iterator[Sequence[FoundJob]]:
        for table, order in (("task", "-priority"), ("schedule", "timestamp")):
            after: tuple[Any, ...] | None = None
            while rows := self._load_rows(table, order, after):
                yield [
                    FoundJob(HueyRow(table, row[1]), self._parse_unless_revoked(row[2], row[3]))
                    for row in rows
                ]
                after = rows[-1][:2]

    def prepare(self, found: Sequence[FoundJob]) -> list[ImportCandidate | None]:
        seen: Counter[str] = Counter()
        with self._transaction():
            self._file.execute(_NOTES)
            return [
                self._record_message(found_job.place, found_job.message.key, seen)
                for found_job in found
                if isinstance(found_job.place, HueyRow) and isinstance(found_job.message, ForeignJob)
            ]

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        with self._transaction():
            return [self._delete_message(place) for place in places if isinstance(place, HueyRow)]

    def close(self) -> None:
        self._drop_notes()
        self._file.close()

    def _drop_notes(self) -> None:
        """Drop the table of notes, unless an import has to be continued."""
        with suppress(StoreError), self._connection() as file:
            if file.execute(_HAS_NOTES).fetchone() is None:
                return
            with self._transaction():
                if file.execute(_FIRST_NOTE).fetchone() is None:
                    file.execute("drop table forebay_import")

    def _record_message(self, row: HueyRow, key: str, seen: Counter[str]) -> ImportCandidate | None:
        """Note a message, and return it with its token. A message that an earlier import has noted and not
        removed keeps its token. Messages of one key are equal, so it does not matter which of them gets which
        token."""
        if self._file.execute(f"select 1 from {row.table} where id = ?", (row.number,)).fetchone() is None:  # noqa: S608 - a name of ours
            return None
        known = self._file.execute(
            "select word from forebay_import where key = ? order by rowid limit 1 offset ?", (key, seen[key])
        ).fetchone()
        seen[key] += 1
        [token] = known or [new_token()]
        if known is None:
            self._file.execute("insert into forebay_import values (?, ?)", (key, token))
        return ImportCandidate(f"{key}:{token}", row._replace(key=key, token=token))

    def _delete_message(self, row: HueyRow) -> bool:
        """Delete a message with its note, so that a later one under its key is not taken for it."""
        if not self._file.execute(f"delete from {row.table} where id = ?", (row.number,)).rowcount:  # noqa: S608 - a name of ours
            return False
        self._file.execute("delete from forebay_import where key = ? and word = ?", (row.key, row.token))
        return True

    def _load_rows(self, table: str, order: str, after: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
        condition = "" if after is None else f"and ({order}, id) > (?, ?)"
        with self._connection() as file:
            return file.execute(
                f"select {order}, id, queue, data from {table} where {self._where()} {condition} "  # noqa: S608 - as above
                f"order by {order}, id limit {PAGE_SIZE}",
                (*self._options.only, *(after or ())),
            ).fetchall()

    def _where(self) -> str:
        only = self._options.only
        return f"queue in ({', '.join('?' * len(only))})" if only else "true"

    def _parse_unless_revoked(self, name: str, data: bytes) -> ForeignJob | SkippedJob:
        message = self._options.parse(bytes(data), name)
        if isinstance(message, SkippedJob):
            return message
        with self._connection() as file:
            revocation = file.execute(
                "select 1 from kv where queue = ? and key in (?, ?)", (name, *revocation_keys(message))
            ).fetchone()
        return message if revocation is None else make_revoked(message)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the block in a transaction."""
        with self._connection() as file:
            file.execute("begin immediate")
            try:
                yield
                file.execute("commit")
            finally:
                if file.in_transaction:
                    file.execute("rollback")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._file
        except sqlite3.OperationalError as exc:
            raise StoreUnavailable(f"{self._path}: {exc}") from exc
        except sqlite3.DatabaseError as exc:
            raise StoreUnusable(f"{self._path}: {exc}") from exc
