"""Evaluation of alert rules: read the board, evaluate all rules, save the board, enqueue notifications.

The board is one document with the state of all rules. An evaluation computes the next board from the one that
it has read, and saves it only if that is still the newest. Of two concurrent evaluations one is refused, and
has done nothing.

Notices of raised and resolved alerts are part of the board until their notifications are enqueued. A process
that dies after it has saved the board leaves them to the next evaluation. Enqueueing them twice changes
nothing: an alert is created once under its id, and its deliveries are jobs with idempotency keys.
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
from forebay.errors import ConfigError, StoreUnavailable
from forebay.operations.alerts.metric_snapshot import MetricSnapshot
from forebay.operations.alerts.notification_jobs import enqueue_notifications
from forebay.operations.alerts.stored_rules_alerts_and_channels import (
    ALERTS,
    BOARDS,
    MAX_TRIES,
    AlertBoard,
    AlertNotice,
    all_rules,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_id
from forebay.telemetry.host_name import host_name

# A document is small. These bounds apply to the notices of one evaluation, and to the tracked queues and
# tasks of one rule and of all rules. The last slots are reserved for critical rules. A rule without a scope
# is always tracked. The rest waits for the next evaluation, or for a free slot.
MAX_NOTICES: Final = 10
MAX_SCOPES_PER_RULE: Final = 20
MAX_SCOPES: Final = 80
MAX_NOT_CRITICAL_SCOPES: Final = 60
HISTORY_LIMIT: Final = 1_000
TRIM_BATCH: Final = 100
_NAME: Final = "current"

logger: logging.Logger = logging.getLogger(__name__)


class EvaluationResult(NamedTuple):
    """The result of an evaluation: alerts that were raised and resolved, and whether deliveries wait."""

    notices: Sequence[AlertNotice] = ()
    has_deliveries: bool = False


def evaluate(store: Store, reader: Reader, clock: Clock) -> EvaluationResult:
    """Evaluate all rules once."""
    board = BOARDS.get_or(reader, _NAME, AlertBoard())
    if board.value.notices:  # left by a process that died before it enqueued them
        _record_and_notify(store, reader, board.value.notices)
    rules = all_rules(reader)
    snapshot = MetricSnapshot(store, reader, clock, list(rules.values()), board.value.evicted)
    standings = _drop_resolved(reader, board.value)
    try:
        after = _evaluate_rules(rules, standings, snapshot)
        is_saved = after == board.value or BOARDS.save(store, _NAME, after, board.revision)
    except ConfigError as exc:
        # Names may be so long that the board does not fit into a document; with a single notice it does.
        logger.warning("alerts come one by one: %s", exc)
        after = _evaluate_rules(rules, standings, snapshot, 1)
        is_saved = after == board.value or BOARDS.save(store, _NAME, after, board.revision)
    if not is_saved:
        return EvaluationResult()  # a concurrent evaluation has saved first, and enqueues its own notices
    has_deliveries = snapshot.has_notices
    if after.notices:
        has_deliveries |= _record_and_notify(store, reader, after.notices)
        BOARDS.save(store, _NAME, replace(after, notices=()), board.revision + 1)
    return EvaluationResult(after.notices, has_deliveries)


def _drop_resolved(reader: Reader, board: AlertBoard) -> dict[str, RuleState]:
    """Return the states of all rules, without alerts that an operator has resolved."""
    ids = [state.alert for state in board.standings.values() if state.alert is not None]
    active = {name for name, record in ALERTS.get_many(reader, ids).items() if record.value.is_active}
    return {
        key: state if state.alert in active else replace(state, alert=None)
        for key, state in board.standings.items()
    }


def _evaluate_rules(
    rules: Mapping[str, AlertRule],
    standings: Mapping[str, RuleState],
    snapshot: MetricSnapshot,
    max_notices: int = MAX_NOTICES,
) -> AlertBoard:
    """Return the next board."""
    evaluation = _Evaluation(rules, standings, snapshot, max_notices)
    evaluation.evaluate()
    return AlertBoard(
        standings=evaluation.standings, notices=tuple(evaluation.notices), evicted=snapshot.evicted
    )


def _urgency(rule: AlertRule) -> tuple[bool, bool]:
    return rule.severity is not Severity.CRITICAL, rule.per is not None


class _Evaluation:
    """One pass over all rules and their scopes. The most urgent rules come first, so that a hundred deep
    queues do not use up the slots of a critical rule."""

    def __init__(
        self,
        rules: Mapping[str, AlertRule],
        standings: Mapping[str, RuleState],
        snapshot: MetricSnapshot,
        max_notices: int,
    ) -> None:
        self._rules = rules
        self._max_notices = max_notices
        self._tracked: Counter[str] = Counter()  # tracked scopes, by rule
        self._previous = standings
        self._snapshot = snapshot
        self.standings: dict[str, RuleState] = {}
        self.notices: list[AlertNotice] = []

    def evaluate(self) -> None:
        for rule in sorted(self._rules.values(), key=_urgency):
            for scope, is_there in self._scopes(rule):
                key = rule.id if scope is None else f"{rule.id} {scope}"
                self._evaluate_one(key, rule, scope, is_there=is_there)
        for key, state in self._previous.items():
            if key.partition(" ")[0] not in self._rules and state.alert is not None:
                self._resolve_alert(key, state, state.alert)

    def _scopes(self, rule: AlertRule) -> Iterator[tuple[str | None, bool]]:
        """Yield the scopes of a rule, with true, and those of earlier evaluations that it has no more, with
        false."""
        current = dict.fromkeys(self._snapshot.scopes(rule) if rule.enabled else [])
        keys = (key.partition(" ") for key in self._previous)
        before = [scope or None for rule_id, _, scope in keys if rule_id == rule.id]
        for scope in dict.fromkeys([*before, *current]):
            yield scope, scope in current

    def _evaluate_one(self, key: str, rule: AlertRule, scope: str | None, *, is_there: bool) -> None:
        before = self._previous.get(key, RuleState())
        holds = is_there and rule.parsed_condition.holds(self._snapshot.metric_lookup(rule, scope))
        after, transition = advance(before, rule, holds=holds, now=self._snapshot.now)
        is_fired = transition is AlertTransition.FIRED
        if transition is AlertTransition.RESOLVED and before.alert is not None:
            self._resolve_alert(key, after, before.alert)
        elif is_fired and self._has_room(rule) and len(self.notices) < self._max_notices:
            self._raise_alert(key, after, rule, scope)
        else:
            self._track_inactive(key, before if is_fired else after, rule)

    def _raise_alert(self, key: str, after: RuleState, rule: AlertRule, scope: str | None) -> None:
        now = self._snapshot.now
        alert = raise_alert(rule, new_id(), scope, self._snapshot.condition_values(rule, scope), now)
        if (
            SKEW in rule.parsed_condition.metrics()
        ):  # only the evaluating process knows which clock it is about
            alert = replace(alert, metadata={**alert.metadata, "looked": f"{host_name()}:{os.getpid()}"})
        self._track(key, replace(after, alert=alert.id))
        self.notices.append(AlertNotice(alert_id=alert.id, step=AlertTransition.FIRED, at=now, alert=alert))

    def _resolve_alert(self, key: str, after: RuleState, alert_id: str) -> None:
        if len(self.notices) >= self._max_notices:  # unchanged, for the next evaluation
            self._track(key, replace(after, alert=alert_id))
            return
        self._track(key, replace(after, alert=None))
        self.notices.append(
            AlertNotice(alert_id=alert_id, step=AlertTransition.RESOLVED, at=self._snapshot.now)
        )

    def _track_inactive(self, key: str, state: RuleState, rule: AlertRule) -> None:
        if state.is_idle(rule.cooldown_ms, self._snapshot.now):
            return
        # Without a slot only time is lost: the condition counts from when there is one. An active alert stays
        # tracked, or it would never be resolved.
        if state.alert is not None or self._has_room(rule):
            self._track(key, state)

    def _has_room(self, rule: AlertRule) -> bool:
        if rule.per is None:
            return True
        limit = MAX_SCOPES if rule.severity is Severity.CRITICAL else MAX_NOT_CRITICAL_SCOPES
        return self._tracked[rule.id] < MAX_SCOPES_PER_RULE and self._tracked.total() < limit

    def _track(self, key: str, state: RuleState) -> None:
        rule_id, _, scope = key.partition(" ")
        self._tracked[rule_id] += bool(scope)
        self.standings[key] = state


# Records and notifications


def _record_and_notify(store: Store, reader: Reader, notices: Sequence[AlertNotice]) -> bool:
    """Save alerts and enqueue their notifications; return whether a channel takes them."""
    alerts = [
        (notice.step, alert)
        for notice in notices
        if (alert := _record_alert(store, reader, notice)) is not None
    ]
    if any(notice.step is AlertTransition.FIRED for notice in notices):
        trim_history(store, reader)
    return enqueue_notifications(store, reader, alerts)


def _record_alert(store: Store, reader: Reader, notice: AlertNotice) -> Alert | None:
    """Save the alert of a notice; return it as it is stored. If another process was faster, the alert is read
    again, and found to be stored."""
    for _ in range(MAX_TRIES):
        record = ALERTS.get(reader, notice.alert_id)
        known = notice.alert if record is None else record.value
        if known is None:
            return None  # raised so long ago that it was deleted
        updated = known
        if notice.step is AlertTransition.RESOLVED and known.is_active:
            updated = replace(known, resolved_at=notice.at)
        if record is not None and updated == known:
            return known
        if ALERTS.save(store, notice.alert_id, updated, record.revision if record else 0):
            return updated
    raise StoreUnavailable(f"alert {notice.alert_id} is changed by other processes again and again")


def trim_history(store: Store, reader: Reader) -> list[Alert]:
    """Delete the oldest resolved alerts beyond the limit, a bounded number at a time; ids sort by time.
    Return the alerts before the deletion."""
    known = [record.value for record in ALERTS.all(reader).values()]
    if len(known) > HISTORY_LIMIT:
        resolved = [alert.id for alert in known if not alert.is_active]
        for name in resolved[: min(len(known) - HISTORY_LIMIT + TRIM_BATCH, 2 * TRIM_BATCH)]:
            store.drop_document(ALERTS.kind, name)
    return known
