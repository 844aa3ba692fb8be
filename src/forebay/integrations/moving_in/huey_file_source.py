"""Where Huey keeps tasks in a file of SQLite: the tables `task` and `schedule`, and revocations in `kv`."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from forebay.errors import ConfigError, StoreUnavailable, StoreUnusable
from forebay.integrations.moving_in.found import AT_ONCE, Found, Left, Waiting
from forebay.integrations.moving_in.huey import SYSTEM
from forebay.integrations.moving_in.huey_reading import Reading, left_revoked, revocations
from forebay.integrations.moving_in.rq import NO_RETRY

_COUNT: Final = ("select count(*) from task where ", "select count(*) from schedule where ")


class Row(NamedTuple):
    """A message in a table."""

    table: str
    number: int


class HueyFileSource:
    """Tasks of Huey in a file of SQLite."""

    system: Final = SYSTEM
    default_policy: Final = NO_RETRY

    def __init__(self, path: str, reading: Reading) -> None:
        self._reading = reading
        self._path = path
        if not Path(path).is_file():
            raise StoreUnusable(f"there is no file {path}")
        # Not to be created: a mistyped name would look like a queue where nothing waits.
        self._file = sqlite3.connect(
            f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=30
        )
        with self._asked() as file:
            tables = {name for (name,) in file.execute("select name from sqlite_master where type = 'table'")}
        if not {"task", "schedule", "kv"} <= tables:
            self.close()
            raise ConfigError(f"{path} holds no tasks of Huey: it has no tables task, schedule and kv")

    def busy(self) -> str:
        return ""  # a file does not tell who looks at it

    def count(self) -> int:
        with self._asked() as file:
            return sum(
                file.execute(count + self._where(), self._reading.only).fetchone()[0] for count in _COUNT
            )

    def pages(self) -> Iterator[Sequence[Found]]:
        for table, order in (("task", "-priority"), ("schedule", "timestamp")):
            after: tuple[Any, ...] | None = None
            while rows := self._rows(table, order, after):
                yield [
                    Found(Row(table, row[1]), self._unless_revoked(Row(table, row[1]), row[2], row[3]))
                    for row in rows
                ]
                after = rows[-1][:2]

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        with self._asked() as file:
            file.execute("begin immediate")
            done = [
                bool(file.execute(f"delete from {place.table} where id = ?", (place.number,)).rowcount)  # noqa: S608 - as above
                for place in places
                if isinstance(place, Row)
            ]
            file.execute("commit")
        return done

    def close(self) -> None:
        self._file.close()

    def _rows(self, table: str, order: str, after: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
        further = "" if after is None else f"and ({order}, id) > (?, ?)"
        with self._asked() as file:
            return file.execute(
                f"select {order}, id, queue, data from {table} where {self._where()} {further} "  # noqa: S608 - as above
                f"order by {order}, id limit {AT_ONCE}",
                (*self._reading.only, *(after or ())),
            ).fetchall()

    def _where(self) -> str:
        only = self._reading.only
        return f"queue in ({', '.join('?' * len(only))})" if only else "true"

    def _unless_revoked(self, row: Row, name: str, data: bytes) -> Waiting | Left:
        what = self._reading.message(bytes(data), name)
        if isinstance(what, Left):
            return what
        with self._asked() as file:
            found = file.execute(
                "select 1 from kv where queue = ? and key in (?, ?)", (name, *revocations(what))
            ).fetchone()
        if found is not None:
            return left_revoked(what)
        # One task may wait twice, and each time it is to run: the row tells them apart.
        return replace(what, key=f"{what.key}:{row.table}:{row.number}")

    @contextmanager
    def _asked(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._file
        except sqlite3.OperationalError as exc:
            raise StoreUnavailable(f"{self._path}: {exc}") from exc
        except sqlite3.DatabaseError as exc:
            raise StoreUnusable(f"{self._path}: {exc}") from exc
