"""Metrics over HTTP: what queues have done lately, and time series."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forebay.domain.histogram import histogram_of
from forebay.domain.job import DAY_MS, NewJob, QueueName
from forebay.domain.metrics import SAMPLE, TEN_SECONDS, MetricRow, QueueSnapshot, TaskStats, start_of
from forebay.domain.outcome import AttemptError, Discarded
from forebay.domain.queue_counts import Counts
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.settlement import decide
from forebay.domain.store_health import ServerUsage
from forebay.domain.worker import WorkerInfo
from forebay.service.runtime.prometheus import worker_metrics
from forebay.service.schema.metrics import store_usage_view
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.service.live_server import Served, serving
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, new_job

TOP = Path(__file__).parents[2]
WAITS = histogram_of([4_000] * 31)
RUNS = histogram_of([8_000] * 30)
BY_STATE = {"pending": 1, "running": 2, "dead": 3, "completed": 4, "scheduled": 5, "cancelled": 6}


@pytest.fixture
def store(plain: Served) -> Iterator[Store]:
    with closing(plain.service.pool.engine.store()) as opened:
        yield opened


def recorded(store: Store, queue: str, now: int) -> int:
    """Write down what a worker may have seen, and when that was."""
    at = start_of(now, TEN_SECONDS) - 2 * TEN_SECONDS
    counts = {"claimed": 31, "completed": 30, "failed": 10, "retried": 9, "dead": 1}
    tasks = {"send": TaskStats(counts, {"Boom": 10}, WAITS, RUNS), "sort": TaskStats()}
    name = QueueName(queue)
    store.record_metrics(
        [
            MetricRow(resolution_ms=TEN_SECONDS, starts_at=at, queue=name, worker="w", tasks=tasks),
            *(_counted(name, at + place * TEN_SECONDS, 100 + place * 60) for place in (-1, 0)),
        ]
    )
    return at


def filled(store: Store, queue: QueueName) -> None:
    """Bring jobs of the queue into all states but two, a different number into each, and two workers."""
    store.insert([new_job(queue=queue, delay_ms=DAY_MS)] * 5)
    receipts = store.insert([new_job(queue=queue)] * 16)
    complete_these, kill_these = 4, 3
    claimed = claim(store, complete_these + kill_these + 2, queue=queue)
    done = [complete(job) for job in claimed[:complete_these]]
    boom = Discarded(AttemptError(type="Boom", message="it broke"))
    dead = [decide(job, boom, 0.0) for job in claimed[complete_these:][:kill_these]]
    store.settle_and_claim(WORKER, [*done, *dead])
    store.cancel([one.id for one in receipts[-6:] if one.id is not None])
    for worker in (WORKER, OTHER_WORKER):
        store.heartbeat(WorkerInfo(id=worker, queues=(queue,), heartbeat_at=2**52))


def _counted(queue: QueueName, at: int, accepted: int) -> MetricRow:
    snapshot = QueueSnapshot(at, Counts(pending=7), accepted, 7)
    return MetricRow(resolution_ms=TEN_SECONDS, starts_at=at, queue=queue, worker=SAMPLE, snapshot=snapshot)


@pytest.mark.shows(
    "R-HTTP-18", "R-HTTP-32", "R-MET-15", "R-MET-16", "R-MET-17", "R-MET-18", "R-MET-21", "R-MET-22"
)
@pytest.mark.shows("R-CANCEL-12", "R-TEST-35")
def test_cp5_2_queue_metrics_are_computed_correctly(plain: Served, store: Store) -> None:
    queue = plain.queue()
    filled(store, QueueName(queue))
    recorded(store, queue, plain.service.pool.clock.now_ms())

    found = plain.done("GET", f"/v1/metrics/queues/{queue}?window_seconds=300")

    assert {state: found["counts"][state] for state in BY_STATE} == BY_STATE
    assert found["consumers_active"] == 2
    assert (found["completed"], found["failed"], found["retried"], found["dead"]) == (30, 10, 9, 1)
    assert (found["throughput_per_second"], found["error_rate"], found["errors"]) == (0.1, 0.25, {"Boom": 10})
    assert (found["wait"]["count"], found["run"]["count"]) == (31, 30)
    for percentile in ("p50_ms", "p95_ms", "p99_ms", "average_ms"):
        assert found["wait"][percentile] == pytest.approx(4.0, rel=0.032)
        assert found["run"][percentile] == pytest.approx(8.0, rel=0.032)
    assert found["next_pending_age_seconds"] >= 0
    assert [task["task"] for task in found["tasks"]] == ["send", "sort"]
    assert found["tasks"][0]["run"] == found["run"]
    assert found["tasks"][1]["run"]["p99_ms"] is None
    assert queue in [one["queue"] for one in plain.done("GET", "/v1/metrics/queues")["queues"]]
    assert plain.done("GET", f"/v1/metrics/queues/{queue}?window_seconds=10")["completed"] == 0


@pytest.mark.shows("R-HTTP-19", "R-MET-23", "R-MET-24")
def test_metrics_over_time_have_a_value_for_each_step(plain: Served, store: Store) -> None:
    queue = plain.queue()
    at = recorded(store, queue, plain.service.pool.clock.now_ms())
    start, end = (datetime.fromtimestamp((at + ms) / 1_000, UTC) for ms in (-TEN_SECONDS, 2 * TEN_SECONDS))
    times = f"start={start:%Y-%m-%dT%H:%M:%SZ}&end={end:%Y-%m-%dT%H:%M:%SZ}"

    wanted = "completed,enqueued,pending"
    found = plain.done("GET", f"/v1/metrics/series?metrics={wanted}&queue={queue}&{times}")

    assert (found["resolution_seconds"], len(found["times"])) == (10, 3)
    assert found["times"][0] == f"{start:%Y-%m-%dT%H:%M:%SZ}"
    assert [(one["name"], one["unit"], one["values"]) for one in found["series"]] == [
        ("completed", "jobs", [0, 30, 0]),
        ("enqueued", "jobs", [None, 60, None]),
        ("pending", "jobs", [7, 7, None]),
    ]
    of_task = plain.done("GET", f"/v1/metrics/series?metrics=completed&queue={queue}&task=sort&{times}")
    assert of_task["series"][0]["values"] == [0, 0, 0]
    coarse = plain.done(
        "GET", f"/v1/metrics/series?metrics=claimed&queue={queue}&{times}&resolution_seconds=30"
    )
    assert (coarse["resolution_seconds"], sum(coarse["series"][0]["values"])) == (30, 31)


def test_a_time_series_is_that_of_the_last_hour_and_of_all_queues(plain: Served, store: Store) -> None:
    recorded(store, plain.queue(), plain.service.pool.clock.now_ms())

    found = plain.done("GET", "/v1/metrics/series?metrics=completed")

    assert found["resolution_seconds"] == 10
    assert sum(found["series"][0]["values"]) >= 30


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("queues/nowhere", 404, "queue_not_found"),
        ("queues?window_seconds=1", 400, "bad_request"),
        ("series?metrics=nonsense", 422, "invalid"),
        ("series?metrics=completed&resolution_seconds=15", 422, "invalid"),
        ("series?metrics=completed&start=2026-01-01T00:00:00Z&end=2025-01-01T00:00:00Z", 422, "invalid"),
        ("series?metrics=a,,b", 400, "bad_request"),
    ],
)
def test_what_cannot_be_shown_is_refused(plain: Served, path: str, status: int, code: str) -> None:
    answer = plain.ask("GET", f"/v1/metrics/{path}")

    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.shows("R-PRI-11", "R-MET-08", "R-MET-19", "R-MET-20", "R-MET-52", "R-MET-22")
def test_a_queue_that_is_asked_for_shows_who_waits_by_priority_and_the_oldest(
    plain: Served, store: Store
) -> None:
    name = plain.queue(enqueue_rate=1_000, enqueue_burst=4)
    queue = QueueName(name)
    store.insert([new_job(queue=queue, priority=priority) for priority in (60, 5, 0, 0)])
    too_many = plain.post("/v1/jobs/batch", {"jobs": [{"task": "t", "queue": name}] * 5})

    found = plain.done("GET", f"/v1/metrics/queues/{name}")

    assert too_many.status_code == 429
    assert found["pending_by_priority"] == {"highest": 1, "high": 1, "normal": 2, "low": 0, "lowest": 0}
    assert found["oldest_pending_age_seconds"] >= found["next_pending_age_seconds"] >= 0
    assert found["rate_limited_requests"] == 1
    [listed] = [one for one in plain.done("GET", "/v1/metrics/queues")["queues"] if one["queue"] == name]
    assert (listed["pending_by_priority"], listed["oldest_pending_age_seconds"]) == ({}, None)
    assert listed["rate_limited_requests"] == 1


@pytest.mark.shows("R-HTTP-31", "R-MET-25", "R-MET-32", "R-MET-49")
def test_the_system_tells_what_it_takes() -> None:
    clock = ManualClock()
    engine = MemoryEngine(clock=clock)
    with serving(engine) as served, closing(engine.store()) as store:
        queue = QueueName(served.queue())
        before = served.done("GET", "/v1/metrics/system")
        store.insert([new_job(queue=queue)] * 3)
        store.heartbeat(WorkerInfo(id=OTHER_WORKER, queues=(queue,), memory=2**20, cpu=0.25))
        clock.advance(seconds=3_600)  # it has died
        store.heartbeat(WorkerInfo(id=WORKER, queues=(queue,), memory=2**21, cpu=0.5))
        store.save_schedule(
            Schedule(definition=ScheduleDefinition(name="s", every_ms=DAY_MS, job=NewJob(task="t")))
        )

        found = served.done("GET", "/v1/metrics/system")

    names = ("workers", "workers_memory_bytes", "workers_cpu_cores", "schedules")
    assert [found[name] - before[name] for name in names] == [1, 2**21, 0.5, 1]
    assert (before["queue_depths"].get(queue, 0), found["queue_depths"][queue]) == (0, 3)
    assert found["server_memory_bytes"] > 2**20
    assert found["server_cpu_seconds"] > 0
    assert set(found["store"]) == {
        *("memory_bytes", "memory_limit_bytes", "memory_used_ratio", "evicted_keys"),
        *("connections", "connection_limit", "connections_used_ratio"),
    }
    used = store_usage_view(ServerUsage(memory=850, memory_limit=1_000, connections=5, connection_limit=None))
    assert (used.memory_bytes, used.memory_limit_bytes, used.memory_used_ratio) == (850, 1_000, 0.85)
    assert (used.connections, used.connections_used_ratio) == (5, None)


@pytest.mark.shows("R-HIST-22", "R-MET-43")
def test_a_day_is_told_in_one_row(plain: Served, store: Store) -> None:
    queue = QueueName(plain.queue())
    today = start_of(plain.service.pool.clock.now_ms(), DAY_MS)
    counts = {"completed": 30, "failed": 10}
    for day, accepted, most in ((today - 2 * DAY_MS, 100, 4), (today - DAY_MS, 160, 9)):
        snapshot = QueueSnapshot(day, Counts(pending=2), accepted, most)
        tasks = {"send": TaskStats(counts, {"Boom": 10}, WAITS, RUNS)}
        row = MetricRow(
            resolution_ms=DAY_MS, starts_at=day, queue=queue, worker="", tasks=tasks, snapshot=snapshot
        )
        store.record_metrics([row])
    start, end = (datetime.fromtimestamp((today - ms) / 1_000, UTC) for ms in (DAY_MS, 0))
    times = f"start={start:%Y-%m-%dT%H:%M:%SZ}&end={end:%Y-%m-%dT%H:%M:%SZ}&resolution_seconds=86400"
    wanted = "enqueued,completed,failed,run_average_ms,run_p95_ms,pending_peak"

    found = plain.done("GET", f"/v1/metrics/series?metrics={wanted}&queue={queue}&{times}")

    series = {one["name"]: one["values"] for one in found["series"]}
    assert [series[name] for name in ("enqueued", "completed", "failed")] == [[60], [30], [10]]
    assert series["run_average_ms"] == [pytest.approx(8.0)]
    assert series["run_p95_ms"] == [pytest.approx(8.0, rel=0.032)]
    assert series["pending_peak"] == [9]


@pytest.mark.shows("R-MET-31", "R-MET-47", "R-SCHED-52")
def test_workers_and_runs_of_schedules_are_shown_to_prometheus() -> None:
    now = 1_000_000
    workers = [
        WorkerInfo(id=WORKER, heartbeat_at=now, memory=2**20, cpu=0.5),
        WorkerInfo(id=OTHER_WORKER, heartbeat_at=now - 61_000),
    ]
    job = NewJob(task="t")
    schedules = [
        Schedule(
            definition=ScheduleDefinition(name=name, every_ms=60_000, job=job),
            enqueued_runs=3,
            skipped_runs=1,
            failed_runs=0,
        )
        for name in ("a", "b")
    ]

    lines = worker_metrics(workers, schedules, now).splitlines()

    for line in (
        *("workers 1", "worker_health 0.5", "workers_memory_bytes 1048576", "workers_cpu_cores 0.5"),
        *("schedules 2", 'schedule_runs{status="enqueued"} 6'),
        *('schedule_runs{status="skipped"} 2', 'schedule_runs{status="failed"} 0'),
    ):
        assert line in lines
    assert "worker_health 1" in worker_metrics([], [], now).splitlines()


MISS_RATE = 'sum(delta(schedule_runs{status!="enqueued"}[1h])) / sum(delta(schedule_runs[1h]))'


@pytest.mark.shows("R-MET-50", "R-ALERT-25", "R-SCHED-52")
def test_the_share_of_missed_runs_is_worked_out_from_two_readings_as_the_guide_says() -> None:
    job = NewJob(task="t")

    def read(*runs: tuple[int, int, int]) -> dict[str, int]:
        schedules = [
            Schedule(
                definition=ScheduleDefinition(name=f"s{number}", every_ms=60_000, job=job),
                enqueued_runs=fired,
                skipped_runs=skipped,
                failed_runs=failed,
            )
            for number, (fired, skipped, failed) in enumerate(runs)
        ]
        lines = worker_metrics([], schedules, 0).splitlines()
        found = (re.fullmatch(r'schedule_runs\{status="(\w+)"\} (\d+)', line) for line in lines)
        return {one[1]: int(one[2]) for one in found if one}

    before, an_hour_later = read((100, 7, 1), (3, 0, 0)), read((154, 10, 4), (3, 0, 0))

    grown = {status: an_hour_later[status] - before[status] for status in before}
    missed = sum(runs for status, runs in grown.items() if status != "enqueued")
    assert missed / sum(grown.values()) == 0.1
    assert MISS_RATE in (TOP / "docs" / "guide" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.shows(
    "R-MET-02", "R-MET-05", "R-MET-07", "R-MET-08", "R-MET-09", "R-MET-10", "R-MET-12", "R-MET-14"
)
@pytest.mark.shows("R-CLI-14", "R-MET-01", "R-MET-03", "R-MET-04", "R-MET-24", "R-MET-44")
def test_all_metrics_are_shown_as_prometheus_reads_them(plain: Served, store: Store) -> None:
    queue = plain.queue()
    filled(store, QueueName(queue))
    now = plain.service.pool.clock.now_ms()
    odd = {'A"B\\C\nD': 2}
    tasks = {"send": TaskStats({"claimed": 31, "completed": 30, "dead": 1}, odd, WAITS, RUNS)}
    store.record_metrics(
        [
            MetricRow(
                resolution_ms=DAY_MS,
                starts_at=start_of(now, DAY_MS) - DAY_MS,
                queue=QueueName(queue),
                worker="",
                tasks=tasks,
                snapshot=QueueSnapshot(now, Counts(), 123, 0),
            )
        ]
    )

    answer = plain.ask("GET", "/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in answer.text.splitlines() if f'queue="{queue}"' in line]
    for line in (
        f'tasks_enqueued_total{{queue="{queue}"}} 123',
        f'tasks_dequeued_total{{queue="{queue}"}} 31',
        f'tasks_completed_total{{queue="{queue}",status="completed"}} 30',
        f'tasks_completed_total{{queue="{queue}",status="dead"}} 1',
        f'task_failures_total{{queue="{queue}",error_type="A\\"B\\\\C\\nD"}} 2',
        f'task_wait_time_seconds_bucket{{queue="{queue}",le="0.005"}} 31',
        f'task_processing_time_seconds_bucket{{queue="{queue}",le="0.005"}} 0',
        f'task_processing_time_seconds_bucket{{queue="{queue}",le="+Inf"}} 30',
        f'task_processing_time_seconds_sum{{queue="{queue}"}} 0.24',
        f'task_processing_time_seconds_count{{queue="{queue}"}} 30',
        *(f'queue_depth{{queue="{queue}",status="{state}"}} {jobs}' for state, jobs in BY_STATE.items()),
        f'dead_letter_queue_size{{queue="{queue}"}} 3',
        f'active_consumers{{queue="{queue}"}} 2',
    ):
        assert line in lines
    assert any(line.startswith(f'queue_next_pending_task_age_seconds{{queue="{queue}"}} ') for line in lines)
    assert "# TYPE task_wait_time_seconds histogram" in answer.text.splitlines()


def test_a_check_of_the_address_that_prometheus_reads_is_answered(plain: Served) -> None:
    answer = plain.ask("HEAD", "/metrics")

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == plain.ask("GET", "/metrics").headers["content-type"]
