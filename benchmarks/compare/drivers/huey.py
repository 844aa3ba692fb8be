"""huey: pops a job before it runs it, so a crash loses it. Results are off."""

from __future__ import annotations

import os
from typing import Any

from huey import PostgresHuey, RedisHuey, SqliteHuey

from benchmarks.compare.notes import argument, note

URL = os.environ["COMPARE_URL"]


def opened(**options: Any) -> Any:
    if URL.startswith("redis"):
        return RedisHuey("b", url=URL, results=False)
    if URL.startswith("postgres"):
        return PostgresHuey("b", dsn=URL, results=False, **options)
    # Journal WAL and synchronous FULL, its defaults.
    return SqliteHuey(
        "b", filename=f"{os.path.dirname(URL.removeprefix('sqlite:///'))}/huey.db", results=False
    )


huey = opened() if URL.startswith(("redis", "sqlite")) else opened(create_tables=False)


@huey.task()
def noop(given: dict[str, Any]) -> None:
    note(given["t"])


def setup() -> None:
    opened()


def enqueue(given: dict[str, Any]) -> None:
    noop(given)


def fill(jobs: int) -> None:
    """Copies of one job, made by the engine."""
    enqueue(argument())
    if URL.startswith("redis"):
        _fill_redis(jobs)
    elif URL.startswith("postgres"):
        _fill_postgres(jobs)
    else:
        _fill_sqlite(jobs)


def _fill_redis(jobs: int) -> None:
    import redis  # noqa: PLC0415 - each engine needs its own client

    client = redis.Redis.from_url(URL)
    key = huey.storage.queue_key
    (message,) = client.lrange(key, 0, 0)
    for _ in range(0, jobs, 1_000):
        client.lpush(key, *([message] * 1_000))


def _fill_postgres(jobs: int) -> None:
    import psycopg  # noqa: PLC0415

    with psycopg.connect(URL, autocommit=True) as connection:
        columns = "select column_name from information_schema.columns where table_name = 'huey_task'"
        names = ", ".join(name for (name,) in connection.execute(columns) if name != "id")
        copies = f"select {names} from (select * from huey_task limit 1) one, generate_series(1, {jobs})"
        connection.execute(f"insert into huey_task ({names}) {copies}")
        connection.execute("vacuum analyze huey_task")


def _fill_sqlite(jobs: int) -> None:
    numbers = f"with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {jobs})"
    copies = "select queue, data, priority from (select * from task limit 1), numbers"
    huey.storage.sql(f"{numbers} insert into task (queue, data, priority) {copies}", (), True)
