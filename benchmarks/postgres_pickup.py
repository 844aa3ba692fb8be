"""How soon a job on PostgreSQL starts, beside NOTIFY and a bare table: part of `make bench WHAT=postgres`.

As in `latency.py`: one process enqueues a job every 20 ms, a worker in another process runs it. Raw is a row
and a NOTIFY in one commit, a process that listens, and one statement that claims the row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import psycopg

from benchmarks.latency import (
    DEADLINE_SECONDS,
    EVERY_SECONDS,
    WARM,
    WARM_NUMBER,
    Delays,
    Starts,
    delays,
    in_another_process,
    now_ns,
    paced,
    pick_up_here,
    pick_up_measurements,
)
from benchmarks.measurements import ARGUMENT, Measurement
from forebay import Forebay

GOALS: Final = {50: 2.2, 99: 6.5}
TABLE: Final = """
drop table if exists picked;
create table picked (
  id bigint generated always as identity primary key, queue text not null, state text not null default 'p',
  rank bigint not null, payload bytea not null
);
create index on picked (queue, rank, id) where state = 'p';
"""
SEND: Final = """
with new as (insert into picked (queue, rank, payload) values ('d', 1, %s) returning 1)
select pg_notify('picked', '') from new
"""
CLAIM: Final = """
update picked set state = 'r' where id = any(array(
  select id from picked where queue = 'd' and state = 'p' order by rank, id limit 1 for update skip locked
)) returning payload
"""


def ours(url: str, jobs: int) -> Delays:
    def probe(number: int, argument: dict[str, object]) -> None:
        """Only the name counts here: it runs in the other process."""

    with in_another_process() as process, Forebay(url) as app:
        task = app.task(name="bench.probe")(probe)
        starts = process.submit(pick_up_here, url, WARM + jobs)
        for _ in range(WARM):
            task.enqueue(WARM_NUMBER, dict(ARGUMENT)).wait(DEADLINE_SECONDS)
        sent = paced(jobs, lambda number: task.enqueue(number, dict(ARGUMENT)))
        return delays(sent, starts.result())


def raw_here(url: str, jobs: int) -> Starts:
    """In a process of its own: wake at each word, claim, note the time."""
    starts: Starts = []
    with (
        psycopg.connect(url, autocommit=True) as listening,
        psycopg.connect(url, autocommit=True) as claiming,
    ):
        listening.execute("listen picked")
        while len(starts) < jobs:
            while row := claiming.execute(CLAIM).fetchone():
                starts.append((int(row[0][:12]), now_ns()))
            if len(starts) < jobs:
                list(listening.notifies(timeout=DEADLINE_SECONDS, stop_after=1))
    return starts


def raw(url: str, jobs: int) -> Delays:
    padding = b" " * 97  # 109 bytes with the number
    with psycopg.connect(url, autocommit=True) as connection, in_another_process() as process:
        connection.execute(TABLE)
        starts = process.submit(raw_here, url, WARM + jobs)
        wait_for_a_listener(connection)

        def send(number: int) -> None:
            connection.execute(SEND, [b"%12d" % number + padding])

        paced(WARM, lambda _: send(WARM_NUMBER))
        sent = paced(jobs, send)
        return delays(sent, starts.result())


def wait_for_a_listener(connection: psycopg.Connection) -> None:
    ends = time.monotonic() + DEADLINE_SECONDS
    while not connection.execute("select 1 from pg_stat_activity where query = 'listen picked'").fetchone():
        if time.monotonic() > ends:
            raise SystemExit(f"no worker listens after {DEADLINE_SECONDS:.0f} s")
        time.sleep(0.01)


def pick_up(urls: Iterator[str], raw_url: str, rounds: int, seconds: float) -> Iterator[Measurement]:
    """From the begin of the enqueue call, and from its return, to the first line of the task."""
    jobs = round(seconds / EVERY_SECONDS)
    found = [(ours(next(urls), jobs), raw(raw_url, jobs)) for _ in range(rounds)]
    begins = [(mine.from_begin, bare.from_begin) for mine, bare in found]
    returns = [(mine.from_return, bare.from_return) for mine, bare in found]
    yield from pick_up_measurements("from the call", begins, GOALS)
    yield from pick_up_measurements("from its return", returns, GOALS)
