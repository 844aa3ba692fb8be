"""PostgreSQL alone: a table of jobs with one index and no promises, and loops that complete the last hundred
and claim the next hundred in one statement. NOTIFY wakes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
import psycopg

from benchmarks.compare.notes import note

BATCH: Final = 100
TABLE: Final = """
create table jobs (
  id bigserial primary key, queue text not null, state smallint not null default 0,
  priority smallint not null default 0, run_at timestamptz not null default now(),
  attempts smallint not null default 0, payload jsonb not null, started timestamptz, finished timestamptz
) with (fillfactor = 70);
create index ready on jobs (queue, priority, run_at, id) where state = 0;
"""
INSERT: Final = "insert into jobs (queue, payload) values ('d', %s)"
INSERT_AND_WAKE: Final = """
with added as (insert into jobs (queue, payload) values ('d', %s) returning 1)
select pg_notify('wake', '') from added
"""
COPY: Final = "copy jobs (queue, payload) from stdin"
FILL: Final = "insert into jobs (queue, payload) select 'd', '{\"t\": 0.0}' from generate_series(1, %s)"
# Not a join with a CTE: a generic plan then expects a tenth of the table and reads all of it.
SETTLE_AND_CLAIM: Final = """
with ended as (update jobs set state = 2, finished = now() where id = any(%s))
update jobs set state = 1, attempts = attempts + 1, started = now()
where id = any(array(
  select id from jobs where state = 0 and queue = 'd' and run_at <= now()
  order by priority, run_at, id limit %s for update skip locked
))
returning id, payload::text
"""


@cache
def connection() -> psycopg.Connection:
    return psycopg.connect(os.environ["COMPARE_URL"], autocommit=True, prepare_threshold=1)


def setup() -> None:
    connection().execute(TABLE)


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def enqueue(argument: dict[str, Any]) -> None:
    connection().execute(INSERT, (encoded(argument),))


def probe(argument: dict[str, Any]) -> None:
    connection().execute(INSERT_AND_WAKE, (encoded(argument),))


def bulk(arguments: Sequence[dict[str, Any]]) -> None:
    with connection().cursor().copy(COPY) as copy:
        for argument in arguments:
            copy.write_row(("d", encoded(argument)))


def fill(jobs: int) -> None:
    connection().execute(FILL, (jobs,))
    connection().execute("vacuum analyze jobs")


def settle_and_claim(ended: list[int]) -> list[int]:
    rows = connection().execute(SETTLE_AND_CLAIM, (ended, BATCH)).fetchall()
    arguments = [msgspec.json.decode(payload) for _, payload in rows]
    if len(rows) == 1:
        note(arguments[0]["t"])
    elif rows:
        note(jobs=len(rows))
    return [row[0] for row in rows]


def main() -> None:
    connection().execute("listen wake")
    ended: list[int] = []
    while True:
        claimed = settle_and_claim(ended)
        if not claimed and not ended:
            list(connection().notifies(timeout=0.5, stop_after=1))
        ended = claimed


if __name__ == "__main__":
    main()
