"""Daily partitions of finished jobs: created ahead, dropped whole after their retention."""

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
    """Return the statements that create today and tomorrow in a new schema; a prune creates later days."""
    today, parent = now - now % DAY_MS, _table(schema, "finished")
    return [
        f"create table {_table(schema, name_of(day))} partition of {parent} {_values(day)}"
        for day in (today, today + DAY_MS)
    ]


def missing_days(tx: Transaction) -> list[int]:
    """Return the starts of days without a partition, from today on.

    A day with jobs in the default partition stays there: its partition could not be attached.
    """
    today = tx.now - tx.now % DAY_MS
    present = {name for (name,) in tx.all("partitions")}
    days = range(today, today + (DAYS_AHEAD + 1) * DAY_MS, DAY_MS)
    missing = [day for day in days if name_of(day) not in present]
    nonempty = (
        {day for (day,) in tx.all("partitions_nonempty", {"days": missing, "day_ms": DAY_MS})}
        if missing
        else ()
    )
    return [day for day in missing if day not in nonempty]


def make_day(tx: Transaction, schema: str, day: int) -> None:
    """Create the partition of one day as a table and attach it, which locks the others for a moment only."""
    tx.run("partition_timeouts")
    table, parent = _table(schema, name_of(day)), _table(schema, "finished")
    tx.define(f"create table {table} (like {parent} including all)")
    tx.define(f"alter table {parent} attach partition {table} {_values(day)}")


def old_days(tx: Transaction) -> list[str]:
    """Return the partitions of which all jobs are past the retention of every queue."""
    keeps = [queue.settings.keep_finished_ms for queue in load_all_queues(tx)]
    # A queue that keeps its jobs for ever, or archives them, needs them pruned one by one.
    if not all(keeps) or any(queue.settings.archive for queue in load_all_queues(tx)):
        return []
    before = tx.now - max(keeps, default=0) - DAY_MS
    days = {name: start_of(name) for (name,) in tx.all("partitions")}
    return [name for name, start in days.items() if start is not None and start <= before]


def remove_day_history(tx: Transaction, schema: str, name: str) -> None:
    """Delete the history of the jobs of a day.

    That may take long, so it comes before the drop, which blocks all other transactions. Its share lock stops
    revivals of these jobs and blocks no reader.
    """
    tx.run("partition_timeouts")
    tx.define(f"lock table {_table(schema, name)} in share mode")
    tx.run("partition_history_remove", _span(name))


def drop_day(tx: Transaction, schema: str, name: str) -> int:
    """Drop a whole day; return the number of its jobs.

    They are counted under a share lock: a revival has either committed before, or finds its job gone. Their
    dependants are searched under an exclusive lock, which waits for row locks: an insert of a dependant has
    either committed before, or finds its parent gone. Readers pass the exclusive lock. They lock the parent
    table before this partition, so if they waited here, the drop, which needs both locks, would deadlock.
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
    """Return when a day starts, from the name of its partition; None for the default one."""
    try:
        day = datetime.strptime(name.removeprefix(_PREFIX), "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(day.timestamp() * 1_000)
