"""`app.alerts`: alerts, alert rules and notification channels of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from forebay.app.client import Client
from forebay.clock import Clock, SystemClock
from forebay.domain.alert import (
    Alert,
    AlertRule,
    AlertScope,
    AlertTransition,
    Severity,
    apply_changes,
    manual_alert,
)
from forebay.domain.alert_channel import MASK, Channel, MailChannel, TlsMode, WebhookChannel
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.durations_and_instants import Duration, duration_within
from forebay.domain.job import DAY_MS
from forebay.domain.job_history import Changes, Event
from forebay.domain.job_query import check_limit
from forebay.domain.operator_changes import changes_between
from forebay.errors import AlertNotFound, AlertRuleNotFound, ConfigError, IllegalTransition
from forebay.operations.alerts.evaluation import EvaluationResult, evaluate, trim_history
from forebay.operations.alerts.notification_jobs import enqueue_notifications
from forebay.operations.alerts.stored_rules_alerts_and_channels import (
    ALERTS,
    CHANNELS,
    RULES,
    StoredRecord,
    all_rules,
    audit_event,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_id

T = TypeVar("T")
MAX_RULES: Final = 100
MAX_CHANNELS: Final = 20
MAX_MANUAL_ALERTS: Final = 1_000
_DURATION_FIELDS: Final = ("window", "hold_for", "cooldown")


class RuleOptions(TypedDict, total=False):
    """Options of a rule besides its name and its condition; lengths are timedeltas or seconds."""

    severity: Severity | str
    window: Duration
    hold_for: Duration
    cooldown: Duration
    enabled: bool
    queue: str | None
    task: str | None
    per: AlertScope | str | None


class MailOptions(TypedDict, total=False):
    """Options of a mail channel besides its addresses and its SMTP server."""

    port: int
    tls: TlsMode | str
    username: str
    password: str
    severity: Severity | str
    enabled: bool


class RuleChanges(RuleOptions, total=False):
    """Fields of a rule that can be changed."""

    name: str
    condition: str


class Alerts:
    """The alerts of a store, their rules, and the channels that notifications go to.

    app.alerts.add_rule("Mail is slow", "wait_p95_ms > 30000", queue="mail", severity="critical")
    app.alerts.save_webhook("ops", "https://ops.example.com/hook", secret="...")
    for alert in app.alerts.list(active=True):
        print(alert.severity, alert.message)
    """

    def __init__(self, client: Client, clock: Clock | None = None, *, actor: str = "") -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._actor = actor

    # Alerts

    def list(
        self,
        *,
        severity: Severity | str | None = None,
        acknowledged: bool | None = None,
        active: bool | None = None,
        limit: int = 50,
    ) -> Sequence[Alert]:
        """Return alerts, newest first, by severity, acknowledged or not, active or resolved. About the newest
        thousand are stored."""
        check_limit(limit)
        level = None if severity is None else parse_severity(severity)
        return self._client.read(lambda reader: list_alerts(reader, level, acknowledged, active))[:limit]

    def get(self, alert_id: str) -> Alert:
        """Return one alert; raise AlertNotFound if there is none."""
        return _require_alert(alert_id, self._client.read(lambda reader: ALERTS.get(reader, alert_id))).value

    def acknowledge(self, alert_id: str) -> Alert:
        """Mark an alert as acknowledged. The first actor stays recorded; the alert resolves as before."""

        def acknowledge(alert: Alert, now: int) -> Alert:
            if alert.acknowledged_at is not None:
                return alert
            return replace(alert, acknowledged_at=now, acknowledged_by=self._actor)

        return self._update_alert(alert_id, acknowledge, "acknowledged")

    def resolve(self, alert_id: str) -> Alert:
        """Resolve an alert. If its condition still holds, it is raised again after the cooldown."""

        def resolve(alert: Alert, now: int) -> Alert:
            return replace(alert, resolved_at=now, resolved_by=self._actor) if alert.is_active else alert

        resolved = self._update_alert(alert_id, resolve, "resolved")
        self._read_and_write(
            lambda store, reader: enqueue_notifications(store, reader, [(AlertTransition.RESOLVED, resolved)])
        )
        return resolved

    def trigger(
        self,
        kind: str,
        message: str,
        *,
        severity: Severity | str = Severity.WARNING,
        details: Mapping[str, Any] | None = None,
    ) -> Alert:
        """Raise an alert without a rule. Its channels are notified, and it stays active until it is resolved.
        At most a thousand may be active; then ConfigError is raised."""

        def work(store: Store, reader: Reader) -> Alert:
            known = trim_history(store, reader)
            if sum(alert.rule is None and alert.is_active for alert in known) >= MAX_MANUAL_ALERTS:
                raise ConfigError(
                    f"there are {MAX_MANUAL_ALERTS:,} active alerts that were raised by hand; resolve some"
                )
            alert = manual_alert(
                new_id(), kind, message, parse_severity(severity), details or {}, reader.now()
            )
            ALERTS.save(
                store, alert.id, alert, event=audit_event(self._actor, f"triggered {alert.id} {kind}")
            )
            enqueue_notifications(store, reader, [(AlertTransition.FIRED, alert)])
            return alert

        return self._read_and_write(work)

    def evaluate(self) -> EvaluationResult:
        """Evaluate all rules now, as workers, consumers and servers do every ten seconds."""
        return self._read_and_write(lambda store, reader: evaluate(store, reader, self._clock))

    def _update_alert(self, alert_id: str, change: Callable[[Alert, int], Alert], action: str) -> Alert:
        def work(store: Store, reader: Reader) -> Alert:
            def with_event(record: StoredRecord[Alert] | None) -> tuple[Alert, Event]:
                after = change(_require_alert(alert_id, record).value, reader.now())
                return after, audit_event(self._actor, f"{action} {alert_id}")

            return ALERTS.update_with_retry(store, reader, alert_id, with_event)

        return self._read_and_write(work)

    # Rules

    def rules(self) -> Sequence[AlertRule]:
        """Return all rules by id, the built-in and the stored ones."""
        return list(self._client.read(all_rules).values())

    def rule(self, rule_id: str) -> AlertRule:
        """Return one rule; raise AlertRuleNotFound if there is none."""
        return _require_rule(rule_id, self._client.read(lambda reader: RULES.get(reader, rule_id)))

    def add_rule(
        self, name: str, condition: str, *, id: str | None = None, **options: Unpack[RuleOptions]
    ) -> AlertRule:
        """Add a rule; raise ConfigError for a condition that cannot be parsed, before anything is stored."""
        # Lower case, as the ids that users choose: nothing sorts rules by creation time.
        rule_id = new_id().lower() if id is None else id
        fields = _fields(options)
        return self.save_rule(AlertRule(id=rule_id, name=name, condition=condition, **fields), is_new=True)

    def save_rule(self, rule: AlertRule, *, is_new: bool = False) -> AlertRule:
        """Save a rule, replacing the one of its id; with `is_new` there must be none."""

        def work(store: Store, reader: Reader) -> AlertRule:
            known = all_rules(reader)
            if rule.id not in known and len(known) >= MAX_RULES:
                raise ConfigError(f"there are {MAX_RULES} rules, and there can be no more")

            def with_event(record: StoredRecord[AlertRule] | None) -> tuple[AlertRule, Event]:
                before = DEFAULT_ALERT_RULES.get(rule.id) if record is None else record.value
                if is_new and before is not None:
                    raise IllegalTransition(f"there is a rule {rule.id} already; change it")
                return rule, audit_event(self._actor, f"saved rule {rule.id}", _rule_changes(before, rule))

            return RULES.update_with_retry(store, reader, rule.id, with_event)

        return self._read_and_write(work)

    def update_rule(self, rule_id: str, **changes: Unpack[RuleChanges]) -> AlertRule:
        """Change fields of a rule; raise AlertRuleNotFound if there is none. A changed built-in rule is
        stored until it is removed."""
        fields = _fields(changes)

        def with_event(record: StoredRecord[AlertRule] | None) -> tuple[AlertRule, Event]:
            before = _require_rule(rule_id, record)
            after = apply_changes(before, fields)
            return after, audit_event(self._actor, f"changed rule {rule_id}", _rule_changes(before, after))

        return self._read_and_write(
            lambda store, reader: RULES.update_with_retry(store, reader, rule_id, with_event)
        )

    def remove_rule(self, rule_id: str) -> bool:
        """Remove a rule, or reset a built-in one to its default; return whether a stored rule was removed. An
        active alert of it is resolved by the next evaluation."""
        event = audit_event(self._actor, f"removed rule {rule_id}")
        return self._client.write(lambda store: store.drop_document(RULES.kind, rule_id, event=event))

    # Channels

    def channel(self, name: str) -> Channel | None:
        """Return a channel with its secret; None if there is none. Through a service, or without its
        encryption key, the secret is a mask."""
        record = self._client.read(lambda reader: CHANNELS.get(reader, name))
        return None if record is None else record.value

    def channels(self) -> Sequence[Channel]:
        """Return all channels by name, with masked secrets."""
        return self._client.read(list_channels)

    def save_webhook(
        self,
        name: str,
        url: str,
        *,
        secret: str = "",
        severity: Severity | str = Severity.INFO,
        enabled: bool = True,
    ) -> Channel:
        """Save a webhook, replacing a channel of this name. It is called for each alert of at least this
        severity that is raised or resolved; with a secret each call is signed."""
        min_severity = parse_severity(severity)
        return self.save_channel(
            WebhookChannel(name=name, url=url, secret=secret, severity=min_severity, enabled=enabled)
        )

    def save_email(
        self,
        name: str,
        to: Sequence[str],
        *,
        sender: str,
        host: str,
        **options: Unpack[MailOptions],
    ) -> Channel:
        """Save a mail channel with these addresses and this SMTP server, replacing a channel of this name."""
        if isinstance(to, str):
            raise ConfigError(f"to is a list of addresses: write to=[{to!r:.60}]")
        fields: dict[str, Any] = {**options}
        unknown = sorted(fields.keys() - set(MailChannel.__struct_fields__))
        if unknown:
            raise ConfigError(f"a mail channel has no {', '.join(unknown)}")
        if "tls" in fields:
            fields["tls"] = _parse_choice(TlsMode, fields["tls"], "tls")
        if "severity" in fields:
            fields["severity"] = parse_severity(fields["severity"])
        return self.save_channel(MailChannel(name=name, to=tuple(to), sender=sender, host=host, **fields))

    def save_channel(self, channel: Channel) -> Channel:
        """Save a channel; return it with a masked secret. Raises ConfigError for one that contains masks."""
        if channel.is_masked:
            raise ConfigError(
                f"channel {channel.name}: {MASK} stands for a value that is hidden, or encrypted with a key "
                "that this process lacks; give the value itself"
            )

        def work(store: Store, reader: Reader) -> Channel:
            known = CHANNELS.all(reader)
            if channel.name not in known and len(known) >= MAX_CHANNELS:
                raise ConfigError(f"there are {MAX_CHANNELS} channels, and there can be no more")

            def with_event(record: StoredRecord[Channel] | None) -> tuple[Channel, Event]:
                changes = _channel_changes(record.value if record else None, channel)
                return channel, audit_event(self._actor, f"saved channel {channel.name}", changes)

            return CHANNELS.update_with_retry(store, reader, channel.name, with_event).public_view()

        return self._read_and_write(work)

    def remove_channel(self, name: str) -> bool:
        """Remove a channel; return whether there was one."""
        event = audit_event(self._actor, f"removed channel {name}")
        return self._client.write(lambda store: store.drop_document(CHANNELS.kind, name, event=event))

    # The same for coroutines

    async def list_async(
        self,
        *,
        severity: Severity | str | None = None,
        acknowledged: bool | None = None,
        active: bool | None = None,
        limit: int = 50,
    ) -> Sequence[Alert]:
        """`list` for coroutines."""
        return await self._client.run_in_thread(
            self.list, severity=severity, acknowledged=acknowledged, active=active, limit=limit
        )

    async def acknowledge_async(self, alert_id: str) -> Alert:
        """`acknowledge` for coroutines."""
        return await self._client.run_in_thread(self.acknowledge, alert_id)

    async def resolve_async(self, alert_id: str) -> Alert:
        """`resolve` for coroutines."""
        return await self._client.run_in_thread(self.resolve, alert_id)

    async def trigger_async(
        self,
        kind: str,
        message: str,
        *,
        severity: Severity | str = Severity.WARNING,
        details: Mapping[str, Any] | None = None,
    ) -> Alert:
        """`trigger` for coroutines."""
        return await self._client.run_in_thread(
            self.trigger, kind, message, severity=severity, details=details
        )

    # Internals

    def _read_and_write(self, work: Callable[[Store, Reader], T]) -> T:
        return self._client.write(lambda store: self._client.read(lambda reader: work(store, reader)))


def list_alerts(
    reader: Reader, severity: Severity | None, acknowledged: bool | None, active: bool | None
) -> Sequence[Alert]:
    """Return the matching alerts, newest first."""
    matching = [
        record.value
        for record in ALERTS.all(reader).values()
        if severity in (None, record.value.severity)
        and acknowledged in (None, record.value.acknowledged_at is not None)
        and active in (None, record.value.is_active)
    ]
    return sorted(matching, key=lambda alert: (alert.triggered_at, alert.id), reverse=True)


def list_channels(reader: Reader) -> Sequence[Channel]:
    """Return all channels by name, with masked secrets."""
    return [record.value.public_view() for record in CHANNELS.all(reader).values()]


def parse_severity(value: Severity | str) -> Severity:
    """Return the severity of this name; raise ConfigError for an unknown one."""
    return _parse_choice(Severity, value, "severity")


Choice = TypeVar("Choice", Severity, AlertScope, TlsMode)


def _parse_choice(kind: type[Choice], value: object, name: str) -> Choice:
    try:
        return kind(str(value).lower())
    except ValueError:
        raise ConfigError(f"{value!r:.60} is no {name}: there are {', '.join(kind)}") from None


def _fields(options: RuleOptions | RuleChanges) -> dict[str, Any]:
    """Return the options of a call as fields of a rule."""
    fields: dict[str, Any] = dict(options)
    for name in _DURATION_FIELDS:
        if name in fields:
            fields[f"{name}_ms"] = duration_within(name, fields.pop(name), 0, 7 * DAY_MS)
    if "severity" in fields:
        fields["severity"] = parse_severity(fields["severity"])
    if fields.get("per") is not None:
        fields["per"] = _parse_choice(AlertScope, fields["per"], "scope")
    unknown = sorted(fields.keys() - set(AlertRule.__struct_fields__))
    if unknown:
        raise ConfigError(f"a rule has no {', '.join(unknown)}")
    return fields


def _require_alert(alert_id: str, record: StoredRecord[Alert] | None) -> StoredRecord[Alert]:
    if record is None:
        raise AlertNotFound(f"there is no alert {alert_id!r:.60}; list them with `forebay alerts`")
    return record


def _require_rule(rule_id: str, record: StoredRecord[AlertRule] | None) -> AlertRule:
    rule = DEFAULT_ALERT_RULES.get(rule_id) if record is None else record.value
    if rule is None:
        raise AlertRuleNotFound(f"there is no rule {rule_id!r:.60}; list them with `forebay alerts rules`")
    return rule


def _rule_changes(before: AlertRule | None, after: AlertRule) -> Changes:
    return changes_between(
        None if before is None else msgspec.to_builtins(before), msgspec.to_builtins(after)
    )


def _channel_changes(before: Channel | None, after: Channel) -> Changes:
    """Return the changes without secrets; of a changed secret only that it has changed."""
    if before == after:
        return {}
    changes = changes_between(
        None if before is None else msgspec.to_builtins(before.public_view()),
        msgspec.to_builtins(after.public_view()),
    )
    return changes or {"secret": (None, "changed")}
