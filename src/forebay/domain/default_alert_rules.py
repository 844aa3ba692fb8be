"""Built-in alert rules. They can be changed and disabled like all others; removing one restores its
default."""

from __future__ import annotations

from typing import Final

from forebay.domain.alert import AlertRule, AlertScope, Severity
from forebay.domain.metrics import HOUR, MINUTE

# Cheap metrics come first: where such a condition does not hold, the rest is not even read.
DEFAULT_ALERT_RULES: Final = {
    rule.id: rule
    for rule in (
        # Without a hold time: different processes evaluate it, and the next one's clock may be right.
        AlertRule(id="clock-skew", name="Clocks differ", condition="clock_skew_ms > 5000"),
        AlertRule(
            id="dead-letters",
            name="Jobs have gone to the dead letters",
            severity=Severity.CRITICAL,
            condition="dead > 0",
            window_ms=MINUTE,
        ),
        AlertRule(
            id="dead-letters-surge",
            name="More than ten dead letters in a minute",
            severity=Severity.CRITICAL,
            condition="dead > 10",
            window_ms=MINUTE,
        ),
        # A rate of few attempts says little: one failure out of three is no outage.
        AlertRule(id="error-rate", name="Many attempts fail", condition="error_rate > 0.05 and failed >= 5"),
        AlertRule(
            id="no-workers",
            name="Jobs wait and no worker is there",
            severity=Severity.CRITICAL,
            # Metrics show a consumer that is no worker when it claims; in a long run its job is running.
            condition="workers == 0 and pending > 0 and running == 0 and consumers == 0",
            hold_for_ms=MINUTE,
        ),
        AlertRule(
            id="queue-depth",
            name="More than 1,000 jobs wait",
            condition="queue_depth > 1000",
            per=AlertScope.QUEUE,
        ),
        AlertRule(
            id="queue-full",
            name="A queue stays full and refuses jobs",
            condition="queue_used_ratio >= 1",
            hold_for_ms=MINUTE,
            per=AlertScope.QUEUE,
        ),
        AlertRule(
            id="queue-nearly-full",
            name="A queue is nearly full",
            condition="queue_used_ratio > 0.8",
            per=AlertScope.QUEUE,
        ),
        AlertRule(
            id="queue-unserved",
            name="Jobs wait and no consumer serves their queue",
            severity=Severity.CRITICAL,
            condition="pending > 0 and workers == 0 and running == 0 and consumers == 0",
            hold_for_ms=5 * MINUTE,
            per=AlertScope.QUEUE,
        ),
        AlertRule(
            id="schedules-late",
            name="Schedules are not fired in time",
            condition="late_schedules > 0",
            window_ms=HOUR,
        ),
        AlertRule(
            id="slow-runs",
            name="Jobs take twice as long as usual",
            # Runs of a few milliseconds double for reasons that are not worth an alert.
            condition="completed >= 20 and run_p99_ms > 2 * baseline_run_p99_ms and run_p99_ms > 100",
            per=AlertScope.TASK,
        ),
        AlertRule(
            id="store-connections",
            name="The store has hardly any connection left",
            severity=Severity.CRITICAL,
            condition="store_connections_used_ratio >= 0.95",
        ),
        AlertRule(
            id="store-evictions",
            name="The store throws keys away",
            severity=Severity.CRITICAL,
            condition="store_evictions > 0",
        ),
        AlertRule(
            id="store-large",
            name="The store takes more than 500 MB of memory",
            condition="store_memory > 500000000",
        ),
        AlertRule(
            id="store-memory",
            name="The memory of the store is nearly full",
            condition="store_memory_used_ratio > 0.85",
        ),
        AlertRule(
            id="task-error-rate",
            name="A task fails often",
            condition="error_rate > 0.05 and failed >= 5",
            per=AlertScope.TASK,
        ),
        AlertRule(
            id="throughput-low",
            name="Far fewer jobs are done than usual",
            condition="pending > 0 and completed_per_second < 0.1 * baseline_completed_per_second",
            hold_for_ms=5 * MINUTE,
        ),
        AlertRule(
            id="timeouts",
            name="A task takes too long again and again",
            condition="timeouts >= 3",
            per=AlertScope.TASK,
        ),
        AlertRule(
            id="wait-time-skew",
            name="Some jobs wait far longer than others",
            condition="wait_p99_ms > 10 * wait_p50_ms and wait_p99_ms > 1000",
            per=AlertScope.QUEUE,
        ),
        AlertRule(
            id="workers-unhealthy",
            name="Fewer than 80 % of the workers are well",
            condition="workers_healthy_ratio < 0.8",
            hold_for_ms=MINUTE,
        ),
    )
}
