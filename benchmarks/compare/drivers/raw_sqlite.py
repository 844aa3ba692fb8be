"""SQLite alone: a table of jobs with one index and no promises, and a loop that completes the last hundred
and claims the next hundred in one transaction. A datagram wakes it. COMPARE_SYNC is `full` or `normal`."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.compare.notes import note, now

BATCH: Final = 100
TABLE: Final = """
create table jobs (
  id integer primary key, queue text not null, state integer not null default 0,
  priority integer not null default 0, run_at real not null, attempts integer not null default 0,
  payload text not null, finished real
);
create index ready on jobs (queue, priority, run_at, id) where state = 0;
"""
INSERT: Final = "insert into jobs (queue, run_at, payload) values ('d', ?, ?)"
FILL: Final = """
with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ?)
insert into jobs (queue, run_at, payload) select 'd', ?, ? from numbers
"""
CLAIM: Final = """
update jobs set state = 1, attempts = attempts + 1
where id in (
  select id from jobs where state = 0 and queue = 'd' and run_at <= ?
  order by priority, run_at, id limit ?
)
returning id, payload
"""
COMPLETE: Final = "update jobs set state = 2, finished = ? where id in (select value from json_each(?))"


def folder() -> Path:
    return Path(os.environ["COMPARE_URL"].removeprefix("sqlite:///")).parent


@cache
def connection() -> sqlite3.Connection:
    made = sqlite3.connect(folder() / "raw.db", isolation_level=None, timeout=30)
    made.execute("pragma journal_mode = wal")
    made.execute(f"pragma synchronous = {os.environ.get('COMPARE_SYNC', 'full')}")
    made.execute("pragma cache_size = -65536")
    return made


def setup() -> None:
    connection().executescript(TABLE)


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def enqueue(argument: dict[str, Any]) -> None:
    connection().execute(INSERT, (now(), encoded(argument)))


def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    connection().execute("begin immediate")
    connection().executemany(INSERT, [(now(), encoded(argument)) for argument in arguments])
    connection().execute("commit")


def fill(jobs: int) -> None:
    connection().execute(FILL, (jobs, now(), '{"t": 0.0}'))


@cache
def wakeup_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def probe(argument: dict[str, Any]) -> None:
    enqueue(argument)
    wakeup_socket().sendto(b"", str(folder() / "wakeups"))


def settle_and_claim(ended: list[int]) -> list[int]:
    connection().execute("begin immediate")
    if ended:
        connection().execute(COMPLETE, (now(), encoded(ended)))
    rows = connection().execute(CLAIM, (now(), BATCH)).fetchall()
    connection().execute("commit")
    arguments = [msgspec.json.decode(payload) for _, payload in rows]
    if len(rows) == 1:
        note(arguments[0]["t"])
    elif rows:
        note(jobs=len(rows))
    return [row[0] for row in rows]


def main() -> None:
    wakeup_socket().bind(str(folder() / "wakeups"))
    ended: list[int] = []
    while True:
        claimed = settle_and_claim(ended)
        if not claimed and not ended:
            wakeup_socket().recv(16)
        ended = claimed


if __name__ == "__main__":
    main()
