"""Looking at all rules of alerts: read, judge, write down, tell.

How all rules stand is one document, the board. Whoever looks works the next one out from the one it has read,
and writes it only if that is still the newest: of two who look at the same time one is refused, and has done
nothing. News of alerts are part of the board until they were passed on for sure. Whoever dies after the board
was written leaves them to the next one; passing them on twice changes nothing, because an alert is created
once under its id, and its deliveries are jobs with a key that is taken once.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.alert import (
    SKEW,
    Alert,
    AlertRule,
    AlertTransition,
    RuleState,
    Severity,
    advance,
    raise_alert,
)
from forebay.domain.alert_channel import Channel
from forebay.domain.job import ALERT_QUEUE, ALERT_TASK, NewJob
from forebay.domain.retry import RetryPolicy
from forebay.errors import ConfigError, ForebayError, StoreError, StoreUnavailable
from forebay.operations.alerts.records import (
    ALERTS,
    BOARDS,
    CHANNELS,
    MAX_TRIES,
    AlertBoard,
    AlertNotice,
    all_rules,
)
from forebay.operations.alerts.snapshot import MetricSnapshot
from forebay.payload.codec import encode_call
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.ids import new_id
from forebay.telemetry.host import host_name

# A document is not large: so much news is passed on at a time, and so many queues and tasks are remembered,
# of one rule and of all; the last places are for critical rules. A rule that looks at nothing one by one
# always has its place. What is beyond waits for the next look, or for a place.
MAX_NOTICES: Final = 10
MAX_SCOPES_PER_RULE: Final = 20
MAX_SCOPES: Final = 80
MAX_NOT_CRITICAL_SCOPES: Final = 60
HISTORY_LIMIT: Final = 1_000
TRIM_BATCH: Final = 100
_NAME: Final = "current"
# Ten times in some three hours.
_DELIVERY_POLICY: Final = RetryPolicy(max_retries=10, base_ms=10_000, ceiling_ms=3_600_000)

logger: logging.Logger = logging.getLogger(__name__)


class EvaluationResult(NamedTuple):
    """What came of a look: the alerts that were raised and resolved, and whether deliveries wait."""

    notices: Sequence[AlertNotice] = ()
    has_deliveries: bool = False


def evaluate(store: Store, reader: Reader, clock: Clock) -> EvaluationResult:
    """Look at all rules once."""
    seen = BOARDS.get_or(reader, _NAME, AlertBoard())
    if seen.value.notices:  # of somebody who did not come to pass them on
        _record_and_notify(store, reader, seen.value.notices)
    rules = all_rules(reader)
    outlook = MetricSnapshot(store, reader, clock, list(rules.values()), seen.value.evicted)
    standings = _drop_resolved(reader, seen.value)
    try:
        after = _evaluate_rules(rules, standings, outlook)
        is_ours = after == seen.value or BOARDS.save(store, _NAME, after, seen.revision)
    except ConfigError as exc:
        # Names may be so long that all of it does not fit into a document; with one piece of news it does.
        logger.warning("alerts come one by one: %s", exc)
        after = _evaluate_rules(rules, standings, outlook, 1)
        is_ours = after == seen.value or BOARDS.save(store, _NAME, after, seen.revision)
    if not is_ours:
        return EvaluationResult()  # somebody else has looked meanwhile, and it is theirs to tell
    has_deliveries = outlook.has_notices
    if after.notices:
        has_deliveries |= _record_and_notify(store, reader, after.notices)
        BOARDS.save(store, _NAME, replace(after, notices=()), seen.revision + 1)
    return EvaluationResult(after.notices, has_deliveries)


def _drop_resolved(reader: Reader, board: AlertBoard) -> dict[str, RuleState]:
    """How rules stand, without the alerts that somebody has resolved by hand."""
    ids = [one.alert for one in board.standings.values() if one.alert is not None]
    active = {name for name, kept in ALERTS.get_many(reader, ids).items() if kept.value.is_active}
    return {
        key: one if one.alert in active else replace(one, alert=None) for key, one in board.standings.items()
    }


def _evaluate_rules(
    rules: Mapping[str, AlertRule],
    standings: Mapping[str, RuleState],
    snapshot: MetricSnapshot,
    max_notices: int = MAX_NOTICES,
) -> AlertBoard:
    """How all rules stand after this look."""
    judging = _Evaluation(rules, standings, snapshot, max_notices)
    judging.evaluate()
    return AlertBoard(standings=judging.standings, notices=tuple(judging.notices), evicted=snapshot.evicted)


def _urgency(rule: AlertRule) -> tuple[bool, bool]:
    return rule.severity is not Severity.CRITICAL, rule.per is not None


class _Evaluation:
    """Goes through all rules, and what they look at, once: what matters most comes first, so that a hundred
    queues that are deep take neither places nor time from one that nobody serves."""

    def __init__(
        self,
        rules: Mapping[str, AlertRule],
        standings: Mapping[str, RuleState],
        snapshot: MetricSnapshot,
        max_notices: int,
    ) -> None:
        self._rules = rules
        self._max_notices = max_notices
        self._tracked: Counter[str] = Counter()  # places, by rule
        self._previous = standings
        self._snapshot = snapshot
        self.standings: dict[str, RuleState] = {}
        self.notices: list[AlertNotice] = []

    def evaluate(self) -> None:
        for rule in sorted(self._rules.values(), key=_urgency):
            for scope, is_there in self._scopes(rule):
                key = rule.id if scope is None else f"{rule.id} {scope}"
                self._evaluate_one(key, rule, scope, is_there=is_there)
        for key, standing in self._previous.items():
            if key.partition(" ")[0] not in self._rules and standing.alert is not None:
                self._resolve_alert(key, standing, standing.alert)

    def _scopes(self, rule: AlertRule) -> Iterator[tuple[str | None, bool]]:
        """What a rule looks at; and what it has looked at before, which may be gone or not its affair any
        more."""
        now = dict.fromkeys(self._snapshot.scopes(rule) if rule.enabled else [])
        keys = (key.partition(" ") for key in self._previous)
        before = [scope or None for rule_id, _, scope in keys if rule_id == rule.id]
        for scope in dict.fromkeys([*before, *now]):
            yield scope, scope in now

    def _evaluate_one(self, key: str, rule: AlertRule, scope: str | None, *, is_there: bool) -> None:
        before = self._previous.get(key, RuleState())
        holds = is_there and rule.parsed_condition.holds(self._snapshot.metric_lookup(rule, scope))
        after, step = advance(before, rule, holds=holds, now=self._snapshot.now)
        if step is AlertTransition.RESOLVED and before.alert is not None:
            self._resolve_alert(key, after, before.alert)
        elif step is AlertTransition.FIRED and self._has_room(rule) and len(self.notices) < self._max_notices:
            self._raise_alert(key, after, rule, scope)
        else:
            self._track_inactive(key, before if step is AlertTransition.FIRED else after, rule)

    def _raise_alert(self, key: str, after: RuleState, rule: AlertRule, scope: str | None) -> None:
        now = self._snapshot.now
        alert = raise_alert(rule, new_id(), scope, self._snapshot.condition_values(rule, scope), now)
        if SKEW in rule.parsed_condition.metrics():  # whose clock it is, only who looks can say
            alert = replace(alert, metadata={**alert.metadata, "looked": f"{host_name()}:{os.getpid()}"})
        self._track(key, replace(after, alert=alert.id))
        self.notices.append(AlertNotice(alert_id=alert.id, step=AlertTransition.FIRED, at=now, alert=alert))

    def _resolve_alert(self, key: str, after: RuleState, alert_id: str) -> None:
        if len(self.notices) >= self._max_notices:  # it stays as it was, for the next look
            self._track(key, replace(after, alert=alert_id))
            return
        self._track(key, replace(after, alert=None))
        self.notices.append(
            AlertNotice(alert_id=alert_id, step=AlertTransition.RESOLVED, at=self._snapshot.now)
        )

    def _track_inactive(self, key: str, standing: RuleState, rule: AlertRule) -> None:
        if standing.is_idle(rule.cooldown_ms, self._snapshot.now):
            return
        # Without a place nothing is lost but time: it counts from when there is one. An alert that is active
        # keeps its place, or nobody would resolve it.
        if standing.alert is not None or self._has_room(rule):
            self._track(key, standing)

    def _has_room(self, rule: AlertRule) -> bool:
        if rule.per is None:
            return True
        most = MAX_SCOPES if rule.severity is Severity.CRITICAL else MAX_NOT_CRITICAL_SCOPES
        return self._tracked[rule.id] < MAX_SCOPES_PER_RULE and self._tracked.total() < most

    def _track(self, key: str, standing: RuleState) -> None:
        rule_id, _, scope = key.partition(" ")
        self._tracked[rule_id] += bool(scope)
        self.standings[key] = standing


# Write down, and tell


def _record_and_notify(store: Store, reader: Reader, notices: Sequence[AlertNotice]) -> bool:
    """Write alerts down and tell of them; whether somebody wants to be told."""
    alerts = [
        (one.step, alert) for one in notices if (alert := _record_alert(store, reader, one)) is not None
    ]
    if any(one.step is AlertTransition.FIRED for one in notices):
        trim_history(store, reader)
    return enqueue_notifications(store, reader, alerts)


def _record_alert(store: Store, reader: Reader, notice: AlertNotice) -> Alert | None:
    """The alert as it stands in the history from now on. Refused where somebody else was faster; then it is
    read again, and found to be written."""
    for _ in range(MAX_TRIES):
        kept = ALERTS.get(reader, notice.alert_id)
        known = notice.alert if kept is None else kept.value
        if known is None:
            return None  # it was raised so long ago that it is forgotten
        wanted = known
        if notice.step is AlertTransition.RESOLVED and known.is_active:
            wanted = replace(known, resolved_at=notice.at)
        if kept is not None and wanted == known:
            return known
        if ALERTS.save(store, notice.alert_id, wanted, kept.revision if kept else 0):
            return wanted
    raise StoreUnavailable(f"alert {notice.alert_id} is changed by others again and again")


def enqueue_notifications(
    store: Store, reader: Reader, alerts: Sequence[tuple[AlertTransition, Alert]]
) -> bool:
    """Put news of alerts on their way, by all channels that want them; whether there are any."""
    channels = [kept.value for kept in CHANNELS.all(reader).values() if kept.value.enabled] if alerts else []
    jobs = [
        make_delivery_job(alert, step, channel)
        for step, alert in alerts
        for channel in channels
        if alert.severity.reaches(channel.severity)
    ]
    try:
        if jobs:
            store.insert(jobs)
    except StoreError:
        raise
    except ForebayError as exc:
        # Somebody has closed the queue of deliveries, or made it too small; alerts are there all the same.
        logger.warning("news of alerts are not delivered: %s", exc)
        return False
    return bool(jobs)


def make_delivery_job(alert: Alert, step: AlertTransition, channel: Channel) -> NewJob:
    """The job that delivers news of an alert. What it says is no argument, which may be encrypted with a key
    that whoever delivers does not have; and it says nothing that is secret."""
    return NewJob(
        task=ALERT_TASK,
        payload=encode_call((), {}),
        queue=ALERT_QUEUE,
        policy=_DELIVERY_POLICY,
        idempotency_key=f"{alert.id} {step} {channel.name}",
        metadata={"alert": alert.id, "step": step.value, "channel": channel.name},
    )


def trim_history(store: Store, reader: Reader) -> list[Alert]:
    """Forget the oldest alerts that are over, where there are too many, and not many at a time; ids sort by
    time. Answers those that were there."""
    known = [kept.value for kept in ALERTS.all(reader).values()]
    if len(known) > HISTORY_LIMIT:
        over = [one.id for one in known if not one.is_active]
        for name in over[: min(len(known) - HISTORY_LIMIT + TRIM_BATCH, 2 * TRIM_BATCH)]:
            store.drop_document(ALERTS.kind, name)
    return known
