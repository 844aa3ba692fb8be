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

from forebay.app.alert_records import ALERTS, BOARDS, CHANNELS, TRIES, Board, Notice, all_rules
from forebay.app.client import host_name
from forebay.app.codec import encode_call
from forebay.app.outlook import Outlook
from forebay.clock import Clock
from forebay.domain.alert import SKEW, Alert, Rule, Severity, Standing, Step, advanced, raised
from forebay.domain.channel import Channel
from forebay.domain.job import NOTICES, NOTIFY, NewJob
from forebay.domain.retry import RetryPolicy
from forebay.errors import ConfigError, ForebayError, StoreError, StoreUnavailable
from forebay.stores.ids import new_id
from forebay.stores.protocol import Reader, Store

# A document is not large: so much news is passed on at a time, and so many queues and tasks are remembered,
# of one rule and of all; the last places are for critical rules. A rule that looks at nothing one by one
# always has its place. What is beyond waits for the next look, or for a place.
MOST_NOTICES: Final = 10
MOST_OF_RULE: Final = 20
MOST_SCOPED: Final = 80
MOST_NOT_CRITICAL: Final = 60
HISTORY: Final = 1_000
TRIMMED_AT_ONCE: Final = 100
_NAME: Final = "current"
# Ten times in some three hours.
_PATIENCE: Final = RetryPolicy(max_retries=10, base_ms=10_000, ceiling_ms=3_600_000)

logger: logging.Logger = logging.getLogger(__name__)


class Looked(NamedTuple):
    """What came of a look: the alerts that were raised and resolved, and whether deliveries wait."""

    notices: Sequence[Notice] = ()
    has_deliveries: bool = False


def evaluate(store: Store, reader: Reader, clock: Clock) -> Looked:
    """Look at all rules once."""
    seen = BOARDS.get_or(reader, _NAME, Board())
    if seen.value.notices:  # of somebody who did not come to pass them on
        _pass_on(store, reader, seen.value.notices)
    rules = all_rules(reader)
    outlook = Outlook(store, reader, clock, list(rules.values()), seen.value.evicted)
    standings = _known_active(reader, seen.value)
    try:
        after = _judged(rules, standings, outlook)
        is_ours = after == seen.value or BOARDS.save(store, _NAME, after, seen.revision)
    except ConfigError as exc:
        # Names may be so long that all of it does not fit into a document; with one piece of news it does.
        logger.warning("alerts come one by one: %s", exc)
        after = _judged(rules, standings, outlook, 1)
        is_ours = after == seen.value or BOARDS.save(store, _NAME, after, seen.revision)
    if not is_ours:
        return Looked()  # somebody else has looked meanwhile, and it is theirs to tell
    has_deliveries = outlook.has_notices
    if after.notices:
        has_deliveries |= _pass_on(store, reader, after.notices)
        BOARDS.save(store, _NAME, replace(after, notices=()), seen.revision + 1)
    return Looked(after.notices, has_deliveries)


def _known_active(reader: Reader, board: Board) -> dict[str, Standing]:
    """How rules stand, without the alerts that somebody has resolved by hand."""
    ids = [one.alert for one in board.standings.values() if one.alert is not None]
    active = {name for name, kept in ALERTS.some(reader, ids).items() if kept.value.is_active}
    return {
        key: one if one.alert in active else replace(one, alert=None) for key, one in board.standings.items()
    }


def _judged(
    rules: Mapping[str, Rule], standings: Mapping[str, Standing], outlook: Outlook, room: int = MOST_NOTICES
) -> Board:
    """How all rules stand after this look."""
    judging = _Judging(rules, standings, outlook, room)
    judging.judge()
    return Board(standings=judging.standings, notices=tuple(judging.notices), evicted=outlook.evicted)


def _urgency(rule: Rule) -> tuple[bool, bool]:
    return rule.severity is not Severity.CRITICAL, rule.each is not None


class _Judging:
    """Goes through all rules, and what they look at, once: what matters most comes first, so that a hundred
    queues that are deep take neither places nor time from one that nobody serves."""

    def __init__(
        self, rules: Mapping[str, Rule], standings: Mapping[str, Standing], outlook: Outlook, room: int
    ) -> None:
        self._rules = rules
        self._room = room
        self._taken: Counter[str] = Counter()  # places, by rule
        self._before = standings
        self._outlook = outlook
        self.standings: dict[str, Standing] = {}
        self.notices: list[Notice] = []

    def judge(self) -> None:
        for rule in sorted(self._rules.values(), key=_urgency):
            for scope, is_there in self._scopes(rule):
                key = rule.id if scope is None else f"{rule.id} {scope}"
                self._judge(key, rule, scope, is_there=is_there)
        for key, standing in self._before.items():
            if key.partition(" ")[0] not in self._rules and standing.alert is not None:
                self._end(key, standing, standing.alert)

    def _scopes(self, rule: Rule) -> Iterator[tuple[str | None, bool]]:
        """What a rule looks at; and what it has looked at before, which may be gone or not its affair any
        more."""
        now = dict.fromkeys(self._outlook.scopes(rule) if rule.enabled else [])
        keys = (key.partition(" ") for key in self._before)
        before = [scope or None for rule_id, _, scope in keys if rule_id == rule.id]
        for scope in dict.fromkeys([*before, *now]):
            yield scope, scope in now

    def _judge(self, key: str, rule: Rule, scope: str | None, *, is_there: bool) -> None:
        before = self._before.get(key, Standing())
        holds = is_there and rule.parsed.holds(self._outlook.of(rule, scope))
        after, step = advanced(before, rule, holds=holds, now=self._outlook.now)
        if step is Step.RESOLVED and before.alert is not None:
            self._end(key, after, before.alert)
        elif step is Step.FIRED and self._has_place(rule) and len(self.notices) < self._room:
            self._raise(key, after, rule, scope)
        else:
            self._remember(key, before if step is Step.FIRED else after, rule)

    def _raise(self, key: str, after: Standing, rule: Rule, scope: str | None) -> None:
        now = self._outlook.now
        alert = raised(rule, new_id(), scope, self._outlook.seen(rule, scope), now)
        if SKEW in rule.parsed.metrics():  # whose clock it is, only who looks can say
            alert = replace(alert, metadata={**alert.metadata, "looked": f"{host_name()}:{os.getpid()}"})
        self._keep(key, replace(after, alert=alert.id))
        self.notices.append(Notice(alert_id=alert.id, step=Step.FIRED, at=now, alert=alert))

    def _end(self, key: str, after: Standing, alert_id: str) -> None:
        if len(self.notices) >= self._room:  # it stays as it was, for the next look
            self._keep(key, replace(after, alert=alert_id))
            return
        self._keep(key, replace(after, alert=None))
        self.notices.append(Notice(alert_id=alert_id, step=Step.RESOLVED, at=self._outlook.now))

    def _remember(self, key: str, standing: Standing, rule: Rule) -> None:
        if standing.is_at_rest(rule.cooldown_ms, self._outlook.now):
            return
        # Without a place nothing is lost but time: it counts from when there is one. An alert that is active
        # keeps its place, or nobody would resolve it.
        if standing.alert is not None or self._has_place(rule):
            self._keep(key, standing)

    def _has_place(self, rule: Rule) -> bool:
        if rule.each is None:
            return True
        most = MOST_SCOPED if rule.severity is Severity.CRITICAL else MOST_NOT_CRITICAL
        return self._taken[rule.id] < MOST_OF_RULE and self._taken.total() < most

    def _keep(self, key: str, standing: Standing) -> None:
        rule_id, _, scope = key.partition(" ")
        self._taken[rule_id] += bool(scope)
        self.standings[key] = standing


# Write down, and tell


def _pass_on(store: Store, reader: Reader, notices: Sequence[Notice]) -> bool:
    """Write alerts down and tell of them; whether somebody wants to be told."""
    alerts = [(one.step, alert) for one in notices if (alert := _recorded(store, reader, one)) is not None]
    if any(one.step is Step.FIRED for one in notices):
        trimmed(store, reader)
    return tell(store, reader, alerts)


def _recorded(store: Store, reader: Reader, notice: Notice) -> Alert | None:
    """The alert as it stands in the history from now on. Refused where somebody else was faster; then it is
    read again, and found to be written."""
    for _ in range(TRIES):
        kept = ALERTS.get(reader, notice.alert_id)
        known = notice.alert if kept is None else kept.value
        if known is None:
            return None  # it was raised so long ago that it is forgotten
        wanted = known
        if notice.step is Step.RESOLVED and known.is_active:
            wanted = replace(known, resolved_at=notice.at)
        if kept is not None and wanted == known:
            return known
        if ALERTS.save(store, notice.alert_id, wanted, kept.revision if kept else 0):
            return wanted
    raise StoreUnavailable(f"alert {notice.alert_id} is changed by others again and again")


def tell(store: Store, reader: Reader, alerts: Sequence[tuple[Step, Alert]]) -> bool:
    """Put news of alerts on their way, by all channels that want them; whether there are any."""
    channels = [kept.value for kept in CHANNELS.all(reader).values() if kept.value.enabled] if alerts else []
    jobs = [
        delivery(alert, step, channel)
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


def delivery(alert: Alert, step: Step, channel: Channel) -> NewJob:
    """The job that delivers news of an alert. What it says is no argument, which may be encrypted with a key
    that whoever delivers does not have; and it says nothing that is secret."""
    return NewJob(
        task=NOTIFY,
        payload=encode_call((), {}),
        queue=NOTICES,
        policy=_PATIENCE,
        once_key=f"{alert.id} {step} {channel.name}",
        metadata={"alert": alert.id, "step": step.value, "channel": channel.name},
    )


def trimmed(store: Store, reader: Reader) -> list[Alert]:
    """Forget the oldest alerts that are over, where there are too many, and not many at a time; ids sort by
    time. Answers those that were there."""
    known = [kept.value for kept in ALERTS.all(reader).values()]
    if len(known) > HISTORY:
        over = [one.id for one in known if not one.is_active]
        for name in over[: min(len(known) - HISTORY + TRIMMED_AT_ONCE, 2 * TRIMMED_AT_ONCE)]:
            store.drop_document(ALERTS.kind, name)
    return known
