"""The days of finished jobs: made ahead, and dropped whole once nobody keeps anything of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.job import DAY_MS
from forebay.stores.postgres.connection import quote_identifier
from forebay.stores.postgres.maintenance import load_all_queues
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import STATES

DAYS_AHEAD: Final = 7
_PREFIX: Final = "finished_"


def first_days(schema: str, now: int) -> list[str]:
    """What makes today and tomorrow in a schema that nobody uses yet; whoever prunes makes those to come."""
    today, parent = now - now % DAY_MS, _table(schema, "finished")
    return [
        f"create table {_table(schema, name_of(day))} partition of {parent} {_values(day)}"
        for day in (today, today + DAY_MS)
    ]


def missing_days(tx: Transaction) -> list[int]:
    """The starts of days, today and some to come, that have no partition of their own yet. A day of which
    jobs are in the default partition already stays there: it could not be joined to the others."""
    today = tx.now - tx.now % DAY_MS
    present = {name for (name,) in tx.all("partitions")}
    days = range(today, today + (DAYS_AHEAD + 1) * DAY_MS, DAY_MS)
    missing = [day for day in days if name_of(day) not in present]
    begun = (
        {day for (day,) in tx.all("partitions_nonempty", {"days": missing, "day_ms": DAY_MS})}
        if missing
        else ()
    )
    return [day for day in missing if day not in begun]


def make_day(tx: Transaction, schema: str, day: int) -> None:
    """Make one day. It is made beside the others and then joined to them, which holds up nobody for long."""
    tx.run("partition_timeouts")
    table, parent = _table(schema, name_of(day)), _table(schema, "finished")
    tx.define(f"create table {table} (like {parent} including all)")
    tx.define(f"alter table {parent} attach partition {table} {_values(day)}")


def old_days(tx: Transaction) -> list[str]:
    """Partitions of which everything is past the retention of every queue."""
    keeps = [queue.settings.keep_finished_ms for queue in load_all_queues(tx)]
    # A queue that keeps its jobs for ever, or wants a line about each, needs them looked at one by one.
    if not all(keeps) or any(queue.settings.archive for queue in load_all_queues(tx)):
        return []
    before = tx.now - max(keeps, default=0) - DAY_MS
    days = {name: start_of(name) for (name,) in tx.all("partitions")}
    return [name for name, start in days.items() if start is not None and start <= before]


def remove_day_history(tx: Transaction, schema: str, name: str) -> None:
    """Forget what is remembered about the jobs of a day. That may take long, so it goes before the drop, for
    which everybody has to wait; meanwhile nobody revives one of them, and who only reads is not held up."""
    tx.run("partition_timeouts")
    tx.define(f"lock table {_table(schema, name)} in share mode")
    tx.run("partition_history_remove", _span(name))


def drop_day(tx: Transaction, schema: str, name: str) -> int:
    """Forget a whole day at once; how many jobs that were. They are counted under a lock that only keeps
    others from changing them: whoever revives one has done so before, or finds it gone.

    What is held because of one of them is looked for under a lock that nobody shares who holds a row: whoever
    inserts a job that depends on one has committed by then, or finds it gone. Those who
    only read pass it: they have the lock of all days before that of this one, so if they waited here, the
    drop, which needs both, would wait for them.
    """
    tx.run("partition_timeouts")
    table = _table(schema, name)
    tx.define(f"lock table {table} in share mode")
    rows = tx.all("partition_counts", _span(name))
    for queue, state, jobs in rows:
        tx.count_removed(queue, STATES[state], jobs)
    cancelled = [job_id for (job_id,) in tx.all("partition_cancelled", _span(name))]
    tx.define(f"lock table {table} in exclusive mode")
    tx.add_to_outbox_if_affected(cancelled, DependencyEvent.DELETED)
    tx.define(f"drop table {table}")
    return sum(jobs for _, _, jobs in rows)


def _table(schema: str, name: str) -> str:
    return f"{quote_identifier(schema)}.{name}"


def _values(day: int) -> str:
    return f"for values from ({day}) to ({day + DAY_MS})"


def _span(name: str) -> dict[str, object]:
    start = start_of(name) or 0
    return {"start": start, "end": start + DAY_MS}


def name_of(day: int) -> str:
    return f"{_PREFIX}{datetime.fromtimestamp(day / 1_000, UTC):%Y%m%d}"


def start_of(name: str) -> int | None:
    """When a day begins, from the name of its partition; None for the default one."""
    try:
        day = datetime.strptime(name.removeprefix(_PREFIX), "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(day.timestamp() * 1_000)
