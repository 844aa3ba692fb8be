"""Stores on PostgreSQL with a past that was written straight into their tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import Final

import psycopg

from forebay.domain.job import DAY_MS, Job, NewJob, QueueName, WorkerId
from forebay.domain.outcome import Completed
from forebay.domain.settlement import Settlement, decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine

QUEUE: Final = QueueName("default")
JOB: Final = NewJob(task="send", payload=b"x" * 109)
URGENT: Final = NewJob(task="urgent", payload=b"x", priority=100)
LANES: Final = frozenset(["task:send", "task:urgent"])
BATCH: Final = 100
CHUNK: Final = 50_000

# Straight into the tables: what a store with such a past looks like, in a minute instead of an hour.
WAITING: Final = """
with j as (
  insert into {s}.jobs (
    id, seq, queue, task, priority, created_at, updated_at, ready_at, run_at, rank, payload
  )
  select '0' || lpad(i::text, 25, '0'), i, 'default', 'send', 0, t, t, t, t, t, repeat('x', 109)::bytea
  from (select i, {now} - {last} + i as t from generate_series({first}, {last}) i) as n
  returning queue, rank, seq, id
)
insert into {s}.ready (queue, age_capped, rank, seq, id) select queue, false, rank, seq, id from j
"""
FINISHED: Final = """
insert into {s}.finished (
  id, seq, queue, task, state, priority, attempt, failures, crashes, created_at, updated_at, ready_at, run_at,
  rank, age_capped, worker, started_at, finished_at, payload, result
)
select '1' || lpad(i::text, 25, '0'), -i, 'default', 'send', 'completed', 0, 1, 0, 0, t, t, t, t, t,
  false, 'w', t, t, repeat('x', 109)::bytea, '1'
from (select i, {now} - (i % {days}) * {day} as t from generate_series({first}, {last}) i) as n
"""
KEPT_DAYS: Final = 5


class Place:
    """A store in a schema of its own, and a connection behind it."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = f"{url}?schema={schema}"
        self.schema = schema
        self.raw = psycopg.connect(url, autocommit=True)
        self.raw.execute(f"drop schema if exists {schema} cascade")
        self.store = open_engine(self.url).store()
        self.store.migrate()
        self.store.save_queue(QUEUE)

    def wait(self, jobs: int) -> None:
        """Let so many more jobs wait."""
        [(last,)] = self.raw.execute(f"select last_value from {self.schema}.job_seq").fetchall()
        self.load("waiting", WAITING, last + 1, last + jobs)
        self.raw.execute(f"select setval('{self.schema}.job_seq', {last + jobs})")
        self._count("pending", jobs)

    def remember(self, jobs: int) -> None:
        """Let so many have finished, within the last days."""
        self.make_days()
        self.load("finished", FINISHED, 1, jobs)
        self._count("completed", jobs)

    def make_days(self) -> None:
        """Let there be partitions for the last days."""
        today = self._now() // DAY_MS * DAY_MS
        for day in range(today - KEPT_DAYS * DAY_MS, today, DAY_MS):
            self.raw.execute(
                f"create table {self.schema}.finished_past_{day} partition of {self.schema}.finished"
                f" for values from ({day}) to ({day + DAY_MS})"
            )

    def load(self, what: str, statement: str, first: int, last: int, **more: int) -> None:
        """Fill a table by a statement that makes the rows from a first to a last number."""
        values = {"s": self.schema, "now": self._now(), "days": KEPT_DAYS, "day": DAY_MS, **more}
        for start in range(first, last + 1, CHUNK):
            end = min(start + CHUNK - 1, last)
            self.raw.execute(statement.format(**values, first=start, last=end).encode())
            progress(what, end - first + 1, last - first + 1)
        self.raw.execute("analyze")

    def _count(self, state: str, jobs: int) -> None:
        self.raw.execute(
            f"insert into {self.schema}.queue_count_deltas (queue, state, jobs) values (%s, %s, %s)",
            [QUEUE, state, jobs],
        )

    def entries_read(self) -> int:
        """Entries of its indexes that were read so far, dead ones included."""
        [(read,)] = self.raw.execute(
            "select sum(idx_tup_read)::bigint from pg_stat_user_indexes where schemaname = %s", [self.schema]
        ).fetchall()
        return int(read)

    def _now(self) -> int:
        [(now,)] = self.raw.execute(f"select {self.schema}.now_ms()").fetchall()
        return int(now)

    def close(self) -> None:
        self.store.close()
        self.raw.execute(f"drop schema {self.schema} cascade")
        self.raw.close()


def progress(what: str, done: int, of: int) -> None:
    """A progress bar on a terminal."""
    if sys.stderr.isatty():
        bar = "#" * (30 * done // of)
        end = "\n" if done == of else ""
        print(f"\r  {what:<9} [{bar:<30}] {done:,} of {of:,}", end=end, file=sys.stderr, flush=True)


def settled(jobs: Sequence[Job]) -> list[Settlement]:
    return [decide(job, Completed(b"1"), 0.0) for job in jobs]


def claimed(store: Store, worker: WorkerId, done: Sequence[Settlement] = ()) -> list[Job]:
    return list(store.settle_and_claim(worker, done, [QueueClaim(QUEUE, BATCH, None, LANES)], BATCH).jobs)


def timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def p99(times: Sequence[float]) -> float:
    return quantiles(times, n=100)[98] * 1e3 if len(times) > 1 else float("nan")
