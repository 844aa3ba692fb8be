"""Schedules, and jobs that have a time, on one store: `make bench WHAT=schedules URL=sqlite:////tmp/schedules.db`.

- Many at once: 10,000 schedules that are due at the same time, and three schedulers, each a process of its
  own as `forebay scheduler` is one. The time from that second until the last of them is fired; each once. The
  goal is five seconds. Beside it the processor time of the three for each schedule.
- No drift: jobs for a time in the near future, one after the other, and an idle worker. How much later than
  their time they start, by the clock of the store. The goal is 50 ms.

What it does not show: schedules of many time zones and lines, and workers that are busy.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Final

from benchmarks.measurements import Measurement, at_most, show
from forebay import Forebay
from forebay.domain.job import JobId, NewJob
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.maintenance.scheduler import Scheduler
from forebay.stores.contract.reader import Reader
from forebay.stores.factory import open_engine

SCHEDULERS: Final = 3
GOAL_SECONDS: Final = 5.0
LATE_GOAL_MS: Final = 50.0
EVERY_MS: Final = 3_600_000
AHEAD_MS: Final = 3_000
FIRST: Final = 200  # saved first, to see how long it takes
PATIENCE_SECONDS: Final = 60.0
JOBS: Final = 20
LOOK_SECONDS: Final = 0.02


def saved(url: str, size: int) -> int:
    """Save schedules that are due together, when all of them are saved; when that is."""
    definitions = [
        ScheduleDefinition(name=f"s{number}", job=NewJob(task="noop"), every_ms=EVERY_MS)
        for number in range(size)
    ]
    with closing(open_engine(url).store()) as store:
        began = time.monotonic()
        for definition in definitions[:FIRST]:
            store.save_schedule(Schedule(definition=definition))
        all_ms = int((time.monotonic() - began) * 2_000 * size / FIRST)
        due_at = store.due_schedules(1).now + all_ms + AHEAD_MS
        for number, definition in enumerate(definitions):
            revision = int(number < FIRST)
            one = Schedule(definition=definition, revision=revision, next_run_at=due_at, check_at=due_at)
            if not store.save_schedule(one):
                raise AssertionError(f"{one.name} is not as it was saved")
        if store.due_schedules(1).schedules:
            raise AssertionError("to save the schedules has taken twice as long as it seemed to take")
    return due_at


def schedule(url: str, is_over: Event) -> None:
    """A scheduler until it is told to end."""
    scheduler = Scheduler(open_engine(url))
    scheduler.start()
    is_over.wait()
    scheduler.stop()


def waiting_until(reader: Reader, at_ms: int) -> None:
    while (left := at_ms - reader.now()) > 0:
        time.sleep(left / 1_000)


def fired_within(reader: Reader, size: int, due_at: int) -> float:
    """Seconds until as many jobs are there as there are schedules."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        at = reader.now()
        if sum(counts.live for counts in reader.counts().values()) >= size:
            return (at - due_at) / 1_000
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"not all schedules were fired within {PATIENCE_SECONDS:.0f} s")


def many_at_once(url: str, size: int) -> tuple[Measurement, Measurement]:
    due_at = saved(url, size)
    context = get_context("spawn")
    is_over = context.Event()
    processes = [context.Process(target=schedule, args=(url, is_over)) for _ in range(SCHEDULERS)]
    for process in processes:
        process.start()
    try:
        with closing(open_engine(url).reader()) as reader:
            waiting_until(reader, due_at)
            seconds = fired_within(reader, size, due_at)
            jobs = sum(counts.live for counts in reader.counts().values())
            fired = sum(one.enqueued_runs for one in every_schedule(reader))
    finally:
        before = cpu_of_children()
        is_over.set()
        for process in processes:
            process.join()
    if not jobs == fired == size:
        raise AssertionError(f"{size} schedules, fired {fired} times, have made {jobs} jobs")
    within = Measurement(
        measure=f"{size:,} schedules at once, {SCHEDULERS} schedulers",
        ours=seconds,
        unit="s",
        goals=(at_most(seconds, GOAL_SECONDS, " s"),),
    )
    cpu = (cpu_of_children() - before) / size * 1e6
    cpu_measurement = Measurement(
        measure="processor time of all schedulers, their start included", ours=cpu, unit="us each"
    )
    return within, cpu_measurement


def every_schedule(reader: Reader) -> Iterator[Schedule]:
    after: str | None = None
    while page := reader.schedules(after=after):
        yield from page
        after = page[-1].name


def cpu_of_children() -> float:
    """What the processes that have ended have spent."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def drift(url: str, jobs: int) -> Measurement:
    """How late jobs start that have a time, on a worker that has nothing else to do."""
    app = Forebay(url)

    @app.task(name="noop")
    def noop() -> None: ...

    late = []
    with app.run_worker(), closing(app.engine.reader()) as reader:
        noop.enqueue().result(timeout=PATIENCE_SECONDS)
        for number in range(jobs):
            at = reader.now() + 300 + 37 * number % 100
            handle = noop.using(run_at=datetime.fromtimestamp(at / 1_000, UTC)).enqueue()
            handle.wait(timeout=PATIENCE_SECONDS)
            late.append(started_at(reader, handle.id) - at)
    if min(late) < 0:
        raise AssertionError(f"a job has started {-min(late)} ms before its time")
    return Measurement(
        measure=f"a job starts after its time, the latest of {jobs}",
        ours=float(max(late)),
        unit="ms",
        against=f"{median(late):.0f} ms in the middle",
        goals=(at_most(float(max(late)), LATE_GOAL_MS, " ms"),),
        rounds=tuple(map(float, late)),
    )


def started_at(reader: Reader, job_id: JobId) -> int:
    [job] = reader.jobs([job_id])
    if job is None or job.started_at is None:
        raise AssertionError(f"job {job_id} has not started")
    return job.started_at


def main() -> None:
    """Measure; the status is 1 if a goal is missed or a promise broken."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("url", help="the address of an empty store")
    options.add_argument("--size", type=int, default=10_000)
    options.add_argument("--jobs", type=int, default=JOBS)
    chosen = options.parse_args()
    measurements = [drift(chosen.url, chosen.jobs), *many_at_once(chosen.url, chosen.size)]
    show("Schedules, and jobs that have a time", measurements)
    sys.exit(not all(goal.is_met for measurement in measurements for goal in measurement.goals))


if __name__ == "__main__":
    main()
