"""Where Huey keeps tasks in a file of SQLite: the tables `task` and `schedule`, and revocations in `kv`."""

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
from forebay.integrations.importers.huey_options import (
    HueyReadOptions,
    make_revoked,
    new_token,
    revocation_keys,
)
from forebay.integrations.importers.rq_message import NO_RETRY
from forebay.integrations.importers.source import (
    PAGE_SIZE,
    ForeignJob,
    FoundJob,
    ImportCandidate,
    SkippedJob,
)

_COUNT: Final = ("select count(*) from task where ", "select count(*) from schedule where ")
# What is about to be stored elsewhere. The number of a row does not name a message: it is given again.
_NOTES: Final = "create table if not exists forebay_import (key text not null, word text not null)"
_HAS_NOTES: Final = "select 1 from sqlite_master where type = 'table' and name = 'forebay_import'"
_FIRST_NOTE: Final = "select 1 from forebay_import limit 1"


class HueyRow(NamedTuple):
    """A message in a table; `key` and `word` once it has been noted."""

    table: str
    number: int
    key: str = ""
    token: str = ""


class HueySqliteSource:
    """Tasks of Huey in a file of SQLite."""

    system: Final = SYSTEM
    default_policy: Final = NO_RETRY
    distinguishes_copies: Final = True

    def __init__(self, path: str, options: HueyReadOptions) -> None:
        self._options = options
        self._path = path
        if not Path(path).is_file():
            raise StoreUnusable(f"there is no file {path}")
        # Not to be created: a mistyped name would look like a queue where nothing waits.
        self._file = sqlite3.connect(
            f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=30
        )
        with self._connection() as file:
            tables = {name for (name,) in file.execute("select name from sqlite_master where type = 'table'")}
        if not {"task", "schedule", "kv"} <= tables:
            self.close()
            raise ConfigError(f"{path} holds no tasks of Huey: it has no tables task, schedule and kv")

    def busy(self) -> str:
        return ""  # a file does not tell who looks at it

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
        met: Counter[str] = Counter()
        with self._transaction():
            self._file.execute(_NOTES)
            return [
                self._record_message(one.place, one.message.key, met)
                for one in found
                if isinstance(one.place, HueyRow) and isinstance(one.message, ForeignJob)
            ]

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        with self._transaction():
            return [self._delete_message(place) for place in places if isinstance(place, HueyRow)]

    def close(self) -> None:
        self._drop_notes()
        self._file.close()

    def _drop_notes(self) -> None:
        """Leave nothing of ours in the file, unless an import has to go on."""
        with suppress(StoreError), self._connection() as file:
            if file.execute(_HAS_NOTES).fetchone() is None:
                return
            with self._transaction():
                if file.execute(_FIRST_NOTE).fetchone() is None:
                    file.execute("drop table forebay_import")

    def _record_message(self, row: HueyRow, key: str, met: Counter[str]) -> ImportCandidate | None:
        """One that an earlier import has noted and not taken out gets the word that it had. Those of one key
        are the same to us, so it does not matter which of them gets which word."""
        if self._file.execute(f"select 1 from {row.table} where id = ?", (row.number,)).fetchone() is None:  # noqa: S608 - a name of ours
            return None
        words = self._file.execute(
            "select word from forebay_import where key = ? order by rowid limit 1 offset ?", (key, met[key])
        ).fetchone()
        met[key] += 1
        [word] = words or [new_token()]
        if words is None:
            self._file.execute("insert into forebay_import values (?, ?)", (key, word))
        return ImportCandidate(f"{key}:{word}", row._replace(key=key, token=word))

    def _delete_message(self, row: HueyRow) -> bool:
        """With its note, so that one that comes later under its key is not taken for it."""
        if not self._file.execute(f"delete from {row.table} where id = ?", (row.number,)).rowcount:  # noqa: S608 - a name of ours
            return False
        self._file.execute("delete from forebay_import where key = ? and word = ?", (row.key, row.token))
        return True

    def _load_rows(self, table: str, order: str, after: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
        further = "" if after is None else f"and ({order}, id) > (?, ?)"
        with self._connection() as file:
            return file.execute(
                f"select {order}, id, queue, data from {table} where {self._where()} {further} "  # noqa: S608 - as above
                f"order by {order}, id limit {PAGE_SIZE}",
                (*self._options.only, *(after or ())),
            ).fetchall()

    def _where(self) -> str:
        only = self._options.only
        return f"queue in ({', '.join('?' * len(only))})" if only else "true"

    def _parse_unless_revoked(self, name: str, data: bytes) -> ForeignJob | SkippedJob:
        what = self._options.parse(bytes(data), name)
        if isinstance(what, SkippedJob):
            return what
        with self._connection() as file:
            found = file.execute(
                "select 1 from kv where queue = ? and key in (?, ?)", (name, *revocation_keys(what))
            ).fetchone()
        return what if found is None else make_revoked(what)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Whole or not at all."""
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
