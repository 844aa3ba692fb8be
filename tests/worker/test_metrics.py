"""From a worker's ticks to metrics: what queues have done lately, over time, and ever."""

from __future__ import annotations

from itertools import groupby

import pytest

from forebay.domain.job import DAY_MS, DEFAULT_QUEUE, QueueName
from forebay.domain.metrics import HOUR, MINUTE, TEN_SECONDS
from forebay.domain.outcome import AttemptError, Failed
from forebay.domain.time_series import steps_between
from forebay.domain.worker import WorkerInfo
from forebay.errors import ConfigError
from forebay.maintenance.metrics_rollup import MetricsRollup
from forebay.operations.queue_stats import queue_stats, queue_totals, series
from tests.stores.support import WORKER
from tests.worker.rig import Rig

BOOM = AttemptError(type="Boom", message="it broke")


def worked(rig: Rig) -> None:
    """A queue of four jobs, one of them there before, of which a worker has ended three; another waits."""
    rig.insert(1)
    rig.insert(1, queue=QueueName("other"))
    MetricsRollup(rig.clock).run(rig.store)
    rig.clock.advance(ms=TEN_SECONDS)
    rig.insert(3)
    rig.store.heartbeat(WorkerInfo(id=WORKER, queues=(DEFAULT_QUEUE,), heartbeat_at=rig.clock.now_ms()))
    rig.clock.advance(ms=300)
    coordinator = rig.coordinator(threads=3)
    coordinator.tick()
    [first, *others] = rig.threads.begin()
    rig.clock.advance(ms=40)
    rig.threads.finish(first, Failed(BOOM, after_ms=HOUR))
    for one in others:
        rig.threads.finish(one)
    coordinator.is_claiming = False
    coordinator.tick()
    coordinator.flush_metrics()
    MetricsRollup(rig.clock).run(rig.store)


@pytest.mark.shows("R-MET-22", "R-TEST-42")
@pytest.mark.shows("R-MET-16", "R-MET-17", "R-MET-18", "R-MET-45", "R-MET-46", "R-MET-53", "R-TEST-35")
def test_what_a_worker_does_is_told_by_the_metrics_of_its_queue(rig: Rig) -> None:
    worked(rig)

    found, other = queue_stats(rig.reader, window_ms=MINUTE)

    assert (found.queue, other.queue) == (DEFAULT_QUEUE, "other")
    assert (found.counts.pending, found.counts.completed, found.counts.retrying) == (1, 2, 1)
    assert (found.throughput, found.span.error_rate) == (2 / 60, 1 / 3)
    assert found.per_second(found.span.enqueued) == found.per_second(found.span.count("claimed")) == 3 / 60
    assert (found.wait.count, found.run.count) == (3, 3)
    assert found.wait.percentile_ms(50) == pytest.approx(300, rel=0.032)
    assert found.run.percentile_ms(99) == pytest.approx(40, rel=0.032)
    assert (found.waits_ms, found.consumers, other.consumers) == (340, 1, 0)
    [at_once, _], [lately, _] = queue_stats(rig.reader, window_ms=TEN_SECONDS), queue_stats(rig.reader)
    assert (at_once.throughput, lately.window_ms, lately.span.error_rate) == (2 / 10, 5 * MINUTE, 1 / 3)
    for window in (2 * HOUR, 2 * DAY_MS):
        assert queue_stats(rig.reader, [DEFAULT_QUEUE], window)[0].span.count("completed") == 2


@pytest.mark.shows("R-MET-23")
def test_what_a_worker_does_is_told_over_time_and_as_a_whole(rig: Rig) -> None:
    worked(rig)

    steps = steps_between(rig.clock.now_ms() - MINUTE, rig.clock.now_ms() + TEN_SECONDS)
    for of in (None, DEFAULT_QUEUE):
        completed, enqueued = series(rig.reader, ["completed", "enqueued"], steps, queue=of)
        assert sum(value or 0 for value in completed) == 2
        assert sum(value or 0 for value in enqueued) == 3
    long_ago = steps_between(rig.clock.now_ms() - 8 * DAY_MS, rig.clock.now_ms() - 8 * DAY_MS + MINUTE)
    assert set(series(rig.reader, ["completed"], long_ago)[0]) == {None}
    [hidden] = series(rig.reader, ["completed"], steps, includes=lambda name: name == "other")
    assert sum(value or 0 for value in hidden) == 0
    found = queue_totals(rig.reader)
    assert found[DEFAULT_QUEUE].stats.counts == {"claimed": 3, "completed": 2, "failed": 1, "retried": 1}
    assert (found[DEFAULT_QUEUE].accepted, found[QueueName("other")].accepted) == (4, 1)


@pytest.mark.shows("R-MET-42", "R-NFR-11")
def test_while_jobs_run_no_figure_stays_the_same_for_more_than_thirty_seconds(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1, tasks=[MetricsRollup(rig.clock)])
    seen: list[tuple[object, ...]] = []

    for _ in range(3 * 60):
        rig.insert(1)
        coordinator.tick()
        rig.finish_all()
        coordinator.tick()
        rig.clock.advance(ms=1_000)
        seen.append(measured(rig))

    for figure, values in zip(MEASURED, zip(*seen, strict=True), strict=True):
        stays = [len(list(group)) for _, group in groupby(values)]
        assert len(stays) > 5, figure
        assert max(stays) <= 30, figure


MEASURED = ("completed lately", "run time", "enqueued lately", "over time", "ever completed", "ever enqueued")


def measured(rig: Rig) -> tuple[object, ...]:
    """What the service, Prometheus and the dashboard show."""
    [now] = queue_stats(rig.reader, [DEFAULT_QUEUE], HOUR)
    steps = steps_between(rig.clock.now_ms() - HOUR, rig.clock.now_ms(), TEN_SECONDS)
    [over_time] = series(rig.reader, ["completed"], steps)
    ever = queue_totals(rig.reader).get(DEFAULT_QUEUE)
    return (
        now.span.count("completed"),
        now.run.count,
        now.span.enqueued,
        sum(value or 0 for value in over_time),
        ever and ever.count("completed"),
        ever and ever.accepted,
    )


@pytest.mark.parametrize("window_ms", [0, TEN_SECONDS - 1, 91 * DAY_MS])
def test_a_window_that_cannot_be_is_refused(rig: Rig, window_ms: int) -> None:
    with pytest.raises(ConfigError, match="a window is from 10 seconds to 90 days long"):
        queue_stats(rig.reader, [], window_ms)
