"""docs/reference/metrics.md: Prometheus metrics, time series, alert rules and events."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

from forebay.clock import SystemClock
from forebay.domain.alert import ALERT_METRICS
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.histogram import Histogram
from forebay.domain.job import QueueName
from forebay.domain.job_history import EventKind
from forebay.domain.metrics import RETENTION_MS, TaskStats
from forebay.domain.queue_counts import Counts
from forebay.domain.time_series import METRICS, SeriesSpan
from forebay.operations.queue_stats import QueueStats, QueueTotals
from forebay.service.runtime.prometheus import exposition, request_metrics, worker_metrics
from forebay.service.runtime.request_stats import RequestRoute, RequestStats
from tools.reference_pages.markdown import code, table

HEAD: Final = """# Metrics, rules and events

Made by `make reference` from the code. The guide shows their use: [metrics](../guide/metrics.md),
[alerts](../guide/alerts.md), [the audit log](../guide/security.md#the-audit-log).
"""
_QUEUE: Final = QueueName("mail")
_KIND: Final = re.compile(r'^ +\w+ = (?:\(\s+)?"(\w+)"(?: +# (.+))?$', re.MULTILINE)
_LABELS: Final = re.compile(r'(\w+)="')


def page() -> str:
    parts = (_prometheus(), _series(), _conditions(), _rules(), _events())
    return "\n".join([HEAD, *(line for part in parts for line in part)]).rstrip() + "\n"


def _prometheus() -> Iterator[str]:
    yield "## Prometheus\n"
    yield "`GET /metrics` of a [service](../guide/metrics.md#prometheus).\n"
    rows = [
        (code(name), kind, ", ".join(code(one) for one in labels), about)
        for name, kind, about, labels in exposed()
    ]
    yield from table(("metric", "kind", "labels", "meaning"), rows)


def exposed() -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield each metric with its kind, help text and labels, as a server with one job would show them."""
    lines = _text().splitlines()
    kinds = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE"))
    for line in lines:
        if line.startswith("# HELP"):
            _, _, name, about = line.split(maxsplit=3)
            samples = (one for one in lines if re.match(rf"{name}(_bucket|_sum|_count)?\{{", one))
            labels = dict.fromkeys(label for one in samples for label in _LABELS.findall(one))
            yield name, kinds[name], about, [label for label in labels if label != "le"]


def _text() -> str:
    """Return the metrics of one queue with a job, and of one request, so that each metric has its labels."""
    task_stats = TaskStats({}, {"ValueError": 1}, Histogram({1: 1}, 1, 1, 1), Histogram({1: 1}, 1, 1, 1))
    queue_stats = QueueStats(_QUEUE, 1_000, Counts(), SeriesSpan(task_stats), {}, None, 0, 0)
    requests = RequestStats(SystemClock())
    route = RequestRoute("/v1/jobs", "POST")
    requests.record_response(route, 0.0)
    requests.errors[(route.endpoint, "429")] += 1
    requests.rate_limited[_QUEUE] += 1
    return (
        exposition([queue_stats], {_QUEUE: QueueTotals(task_stats, 1)})
        + worker_metrics([], [], 0)
        + request_metrics(requests, lambda _: True)
    )


def _series() -> Iterator[str]:
    yield "## Time series\n"
    kept = ", ".join(f"{_length(tier)} for {_length(how_long)}" for tier, how_long in RETENTION_MS.items())
    yield f"`GET /v1/metrics/series?metrics=...`. Steps are kept of {kept}.\n"
    by_unit: dict[str, list[str]] = {}
    for name, metric in METRICS.items():
        by_unit.setdefault(metric.unit, []).append(code(name))
    yield from table(("unit", "metrics"), [(unit, ", ".join(names)) for unit, names in by_unit.items()])


def _conditions() -> Iterator[str]:
    yield "## Metrics in conditions of alert rules\n"
    yield "`forebay alerts rules --metrics` prints the same list.\n"
    yield from table(
        ("metric", "meaning"), [(code(name), about) for name, about in sorted(ALERT_METRICS.items())]
    )


def _rules() -> Iterator[str]:
    yield "## Built-in alert rules\n"
    yield "`forebay alerts set-rule ID` changes one, `remove-rule` restores its defaults.\n"
    rows = [
        (code(one.id), one.name, one.severity.value, code(one.condition), one.per.value if one.per else "",
         _length(one.window_ms), _length(one.hold_for_ms) if one.hold_for_ms else "")
        for one in DEFAULT_ALERT_RULES.values()
    ]  # fmt: skip
    yield from table(("id", "name", "severity", "condition", "per", "window", "hold for"), rows)


def _events() -> Iterator[str]:
    yield "## Events\n"
    yield "Kinds of events in histories of jobs and in the [audit log](../guide/security.md#the-audit-log).\n"
    meanings = dict(_KIND.findall(inspect.getsource(EventKind)))
    yield from table(("kind", "meaning"), [(code(kind.value), meanings[kind.value]) for kind in EventKind])


def _length(ms: int) -> str:
    units = (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
    return next(f"{ms // size} {unit}" for unit, size in units if ms % size == 0).replace("1 days", "1 day")
