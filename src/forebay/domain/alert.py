"""Alerts: rules, when a rule fires, and when its alert is resolved.

A rule has a condition on metrics. An alert is raised if the condition holds for long enough. While it is
active, and for a cooldown after it was raised, the rule raises no other one. When the condition ends, the
alert is resolved, and stays in the history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from forebay.domain.alert_condition import Condition, parse_condition
from forebay.domain.job import DAY_MS
from forebay.domain.job_states import JobState
from forebay.domain.job_validation import check_queue_name, check_task_name, check_text
from forebay.domain.json_values import MAX_DEPTH, is_deeper
from forebay.domain.metrics import MINUTE, TEN_SECONDS
from forebay.domain.time_series import METRICS
from forebay.errors import ConfigError, InvalidJob

MAX_RULE_NAME: Final = 100
MAX_MESSAGE: Final = 300
MAX_DETAILS: Final = 4_096  # bytes of JSON
SKEW: Final = "clock_skew_ms"
_ID: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,49}\Z")

# Current values of a queue or of the whole store; there are none of a single task.
_CURRENT_METRICS: Final[Mapping[str, str]] = {
    **{
        state.value: f"jobs that are {state.value} now"
        for state in JobState
        if state not in (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
    },
    "dead_letters": "jobs among the dead letters now",
    "queue_depth": "jobs that are pending now, the same as `pending`",
    "queue_used_ratio": "pending jobs over the queue's max_length; of the fullest queue",
    "workers": "workers that are alive, of a queue those that serve it",
    "consumers": "active consumers: workers, loops of programs, clients that claim over HTTP or gRPC",
    "workers_healthy_ratio": "healthy workers over all listed ones; a stuck or overdue one is not healthy",
    "enqueued": "jobs that came in the window",
    "late_schedules": "schedules that have been due for a minute and were not fired, up to 100",
    "store_memory": "bytes that a store keeps in memory (Redis)",
    "store_memory_used_ratio": "the same over the memory that its server may take, or its machine has",
    "store_evictions": "keys that the server has evicted in the last ten seconds (Redis)",
    "store_connections_used_ratio": "open connections over the maximum of the server (PostgreSQL, Redis)",
    SKEW: "difference between the clock of the evaluating process and the store's, as a positive number",
}
# Values of the jobs of a window: of all, of a queue, of a task.
_WINDOW_METRICS: Final[Mapping[str, str]] = {
    **{
        name: f"`{name}` of the window, as in the metrics" for name in METRICS if name not in _CURRENT_METRICS
    },
    "timeouts": "attempts that failed in the window because they took too long",
    "completed_per_second": "completed jobs a second, in the window",
    "baseline_completed_per_second": "the same, over the last day",
    "baseline_run_p99_ms": "99th percentile of the run times of the last day",
}
ALERT_METRICS: Final[Mapping[str, str]] = {**_WINDOW_METRICS, **_CURRENT_METRICS}


class Severity(StrEnum):
    """Severity of an alert, the highest first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    def reaches(self, other: Severity) -> bool:
        """Return whether it is at least as severe as another one."""
        order = list(Severity)
        return order.index(self) <= order.index(other)


class AlertScope(StrEnum):
    """Kind of thing that a rule is evaluated for one by one, with an alert for each."""

    QUEUE = "queue"
    TASK = "task"


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """Rule that raises alerts. The condition covers the last `window_ms`, and has to hold for `hold_for_ms`.
    The rule raises another alert at the earliest `cooldown_ms` after the last.

    `queue` and `task` restrict it to the jobs of one queue, or of one task. With `per` it is evaluated for
    each queue, or each task, separately.
    """

    id: str
    name: str
    condition: str
    severity: Severity = Severity.WARNING
    window_ms: int = 5 * MINUTE
    hold_for_ms: int = 0
    cooldown_ms: int = 5 * MINUTE
    enabled: bool = True
    queue: str | None = None
    task: str | None = None
    per: AlertScope | None = None

    def __post_init__(self) -> None:
        if not _ID.match(self.id):
            raise ConfigError(
                f"{self.id!r:.60} cannot be the id of a rule: up to 50 of a-z, 0-9, _ . - and no sign first"
            )
        if type(self.enabled) is not bool:
            raise ConfigError(f"rule {self.id}: enabled is true or false, not {self.enabled!r:.20}")
        _check_seconds("window", self.window_ms, TEN_SECONDS, DAY_MS)
        _check_seconds("hold", self.hold_for_ms, 0, DAY_MS)
        _check_seconds("cooldown", self.cooldown_ms, 0, 7 * DAY_MS)
        try:
            check_text("name", self.name, max_length=MAX_RULE_NAME)
            if self.queue is not None:
                check_queue_name(self.queue)
            if self.task is not None:
                check_task_name(self.task)
        except InvalidJob as exc:
            raise ConfigError(f"rule {self.id}: {exc}") from exc
        self._check_scope()

    def _check_scope(self) -> None:
        if (self.per is AlertScope.QUEUE and self.queue is not None) or (
            self.per is AlertScope.TASK and self.task is not None
        ):
            raise ConfigError(f"rule {self.id} is about one {self.per}, and so cannot look at each of them")
        if self.task is None and self.per is not AlertScope.TASK:
            self.parsed_condition.metrics()  # raises where it cannot be read
            return
        unknown = sorted(self.parsed_condition.metrics() & _CURRENT_METRICS.keys())
        if unknown:
            raise ConfigError(
                f"rule {self.id}: {', '.join(unknown)} is not known by task; there are "
                f"{', '.join(_WINDOW_METRICS)}"
            )

    @property
    def parsed_condition(self) -> Condition:
        return _parse_cached(self.condition)


@lru_cache(512)
def _parse_cached(condition: str) -> Condition:
    return parse_condition(condition, ALERT_METRICS)


def _check_seconds(name: str, value: int, minimum: int, maximum: int) -> None:
    if type(value) is not int or not minimum <= value <= maximum:
        raise ConfigError(f"{name} must be from {minimum / 1_000:g} to {maximum // 1_000:,} seconds")


def apply_changes(rule: AlertRule, changes: Mapping[str, Any]) -> AlertRule:
    """Return a rule with other values; raise ConfigError for an unknown field."""
    unknown = sorted(changes.keys() - set(AlertRule.__struct_fields__) | changes.keys() & {"id"})
    if unknown:
        raise ConfigError(f"a rule has no {', '.join(unknown)} that could be changed")
    return replace(rule, **changes)


class AlertTransition(StrEnum):
    """Transition of an alert."""

    FIRED = "fired"
    RESOLVED = "resolved"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One alert. `source` is the queue or the task of the alert, else its rule; a manual one has "manual"
    and no rule. `metadata` has the metric values that the condition used."""

    id: str
    severity: Severity
    source: str
    message: str
    triggered_at: int
    rule: str | None = None
    condition: str = ""
    acknowledged_at: int | None = None
    acknowledged_by: str = ""
    resolved_at: int | None = None
    resolved_by: str = ""
    metadata: dict[str, Any] = {}

    @property
    def is_active(self) -> bool:
        return self.resolved_at is None

    @property
    def transition(self) -> AlertTransition:
        """Return its last transition."""
        return AlertTransition.FIRED if self.is_active else AlertTransition.RESOLVED


class RuleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a rule, for each queue or task separately if it has `per`: since when its condition holds,
    its active alert, and when it last raised one."""

    since: int | None = None
    alert: str | None = None
    fired_at: int | None = None

    def is_idle(self, cooldown_ms: int, now: int) -> bool:
        """Return whether the state is the same as no stored state."""
        is_cool = self.fired_at is None or now - self.fired_at >= cooldown_ms
        return self.since is None and self.alert is None and is_cool


def advance(
    state: RuleState, rule: AlertRule, *, holds: bool, now: int
) -> tuple[RuleState, AlertTransition | None]:
    """Return the state of a rule after an evaluation, and the transition of its alert. The caller gives a
    raised alert its id."""
    # A store's clock may have been set back: a time in the future counts as now.
    fired_at = None if state.fired_at is None else min(state.fired_at, now)
    state = replace(state, fired_at=fired_at)
    if not (holds and rule.enabled):
        resolved = replace(state, since=None, alert=None)
        return resolved, None if state.alert is None else AlertTransition.RESOLVED
    since = now if state.since is None else min(state.since, now)
    state = replace(state, since=since)
    is_cool = fired_at is None or now - fired_at >= rule.cooldown_ms
    if state.alert is not None or now - since < rule.hold_for_ms or not is_cool:
        return state, None
    return replace(state, fired_at=now), AlertTransition.FIRED


def raise_alert(
    rule: AlertRule, alert_id: str, scope: str | None, seen: Mapping[str, float], now: int
) -> Alert:
    """Build the alert of a rule whose condition holds, with the metric values that it used."""
    values = {name: round(value, 4) for name, value in sorted(seen.items())}
    source_text = f" ({scope})" if scope else ""
    values_text = ", ".join(f"{name} is {value:g}" for name, value in values.items())
    labels = {"queue": rule.queue, "task": rule.task}
    if rule.per is not None:
        labels[rule.per] = scope
    return Alert(
        id=alert_id,
        severity=rule.severity,
        source=scope or rule.queue or rule.task or rule.id,
        message=f"{rule.name}{source_text}: {values_text}"[:MAX_MESSAGE],
        triggered_at=now,
        rule=rule.id,
        condition=rule.condition,
        metadata={
            "values": values,
            "window_seconds": rule.window_ms / 1_000,
            **{name: value for name, value in labels.items() if value is not None},
        },
    )


def manual_alert(
    alert_id: str, kind: str, message: str, severity: Severity, details: Mapping[str, Any], now: int
) -> Alert:
    """Build an alert that an operator raises; it stays active until an operator resolves it."""
    try:
        check_text("kind", kind, max_length=MAX_RULE_NAME)
        check_text("message", message, max_length=MAX_MESSAGE)
        text = msgspec.json.encode(details)
    except InvalidJob as exc:
        raise ConfigError(f"an alert: {exc}") from exc
    except (TypeError, ValueError, RecursionError) as exc:
        raise ConfigError(f"the details of an alert must be JSON: {exc}") from exc
    if is_deeper(text):
        raise ConfigError(f"the details of an alert are nested deeper than {MAX_DEPTH} levels")
    if (size := len(text)) > MAX_DETAILS:
        raise ConfigError(f"the details of an alert have {size:,} bytes, the limit is {MAX_DETAILS:,}")
    return Alert(
        id=alert_id,
        severity=severity,
        source="manual",
        message=message,
        triggered_at=now,
        metadata={"kind": kind, "details": dict(details)},
    )
