"""`app.alerts`: what is wrong, which rules say so, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from forebay.app.alert_records import ALERTS, CHANNELS, RULES, Kept, all_rules, told
from forebay.app.alerting import Looked, evaluate, tell, trimmed
from forebay.app.client import Client
from forebay.app.times import Length, length_within
from forebay.clock import Clock, SystemClock
from forebay.domain.alert import Alert, Each, Rule, Severity, Step, by_hand, changed
from forebay.domain.changes import changes_between
from forebay.domain.channel import MASK, Channel, Mail, Tls, Webhook
from forebay.domain.history import Changes, Event
from forebay.domain.job import DAY_MS
from forebay.domain.query import check_limit
from forebay.domain.usual_rules import USUAL_RULES
from forebay.errors import AlertNotFound, ConfigError, IllegalTransition, RuleNotFound
from forebay.stores.ids import new_id
from forebay.stores.protocol import Reader, Store

T = TypeVar("T")
MAX_RULES: Final = 100
MAX_CHANNELS: Final = 20
MAX_BY_HAND: Final = 1_000
_LENGTHS: Final = ("window", "hold", "cooldown")


class RuleOptions(TypedDict, total=False):
    """What can be said about a rule besides its name and its condition; lengths are timedeltas or seconds."""

    severity: Severity | str
    window: Length
    hold: Length
    cooldown: Length
    enabled: bool
    queue: str | None
    task: str | None
    each: Each | str | None


class MailOptions(TypedDict, total=False):
    """What can be said about a channel of mails besides who gets them by which server."""

    port: int
    tls: Tls | str
    username: str
    password: str
    severity: Severity | str
    enabled: bool


class RuleChanges(RuleOptions, total=False):
    """What can be changed of a rule."""

    name: str
    condition: str


class Alerts:
    """The alerts of a store, their rules, and the channels by which they are told.

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
        """Alerts, newest first: of a severity, those that somebody has acknowledged or not, those that are
        active or over. About the newest thousand are kept."""
        check_limit(limit)
        wanted = None if severity is None else severity_of(severity)
        return self._client.read(lambda reader: alerts_in(reader, wanted, acknowledged, active))[:limit]

    def get(self, alert_id: str) -> Alert:
        """One alert; raises AlertNotFound."""
        return _found(alert_id, self._client.read(lambda reader: ALERTS.get(reader, alert_id))).value

    def acknowledge(self, alert_id: str) -> Alert:
        """Say that somebody has seen it. Whoever was first stays the one who did; it resolves as before."""

        def seen(alert: Alert, now: int) -> Alert:
            if alert.acknowledged_at is not None:
                return alert
            return replace(alert, acknowledged_at=now, acknowledged_by=self._actor)

        return self._changed(alert_id, seen, "acknowledged")

    def resolve(self, alert_id: str) -> Alert:
        """Say that it is over. If its condition still holds, it is raised again after the cooldown."""

        def over(alert: Alert, now: int) -> Alert:
            return replace(alert, resolved_at=now, resolved_by=self._actor) if alert.is_active else alert

        resolved = self._changed(alert_id, over, "resolved")
        self._both(lambda store, reader: tell(store, reader, [(Step.RESOLVED, resolved)]))
        return resolved

    def trigger(
        self,
        kind: str,
        message: str,
        *,
        severity: Severity | str = Severity.WARNING,
        details: Mapping[str, Any] | None = None,
    ) -> Alert:
        """Raise an alert by hand: it is told like all others, and stays active until somebody resolves it.
        There are at most a thousand; then ConfigError is raised."""

        def work(store: Store, reader: Reader) -> Alert:
            known = trimmed(store, reader)
            if sum(one.rule is None and one.is_active for one in known) >= MAX_BY_HAND:
                raise ConfigError(
                    f"there are {MAX_BY_HAND:,} active alerts that were raised by hand; resolve some"
                )
            alert = by_hand(new_id(), kind, message, severity_of(severity), details or {}, reader.now())
            ALERTS.save(store, alert.id, alert, event=told(self._actor, f"triggered {alert.id} {kind}"))
            tell(store, reader, [(Step.FIRED, alert)])
            return alert

        return self._both(work)

    def evaluate(self) -> Looked:
        """Look at all rules now, as workers, consumers and servers do every ten seconds."""
        return self._both(lambda store, reader: evaluate(store, reader, self._clock))

    def _changed(self, alert_id: str, change: Callable[[Alert, int], Alert], what: str) -> Alert:
        def work(store: Store, reader: Reader) -> Alert:
            def with_event(kept: Kept[Alert] | None) -> tuple[Alert, Event]:
                after = change(_found(alert_id, kept).value, reader.now())
                return after, told(self._actor, f"{what} {alert_id}")

            return ALERTS.change(store, reader, alert_id, with_event)

        return self._both(work)

    # Rules

    def rules(self) -> Sequence[Rule]:
        """All rules by id: those that are always there, and those that somebody has made."""
        return list(self._client.read(all_rules).values())

    def rule(self, rule_id: str) -> Rule:
        """One rule; raises RuleNotFound."""
        return _rule(rule_id, self._client.read(lambda reader: RULES.get(reader, rule_id)))

    def add_rule(
        self, name: str, condition: str, *, id: str | None = None, **options: Unpack[RuleOptions]
    ) -> Rule:
        """Make a rule; raises ConfigError for a condition that cannot be read, before anything is stored."""
        # Not an id of ours to be sorted by: lower case, as the ids that people choose.
        rule_id = new_id().lower() if id is None else id
        fields = _fields(options)
        return self.keep_rule(Rule(id=rule_id, name=name, condition=condition, **fields), is_new=True)

    def keep_rule(self, rule: Rule, *, is_new: bool = False) -> Rule:
        """Save a rule that is made, in the place of the one of its id; with `is_new` there must be none."""

        def work(store: Store, reader: Reader) -> Rule:
            known = all_rules(reader)
            if rule.id not in known and len(known) >= MAX_RULES:
                raise ConfigError(f"there are {MAX_RULES} rules, and there can be no more")

            def with_event(kept: Kept[Rule] | None) -> tuple[Rule, Event]:
                before = USUAL_RULES.get(rule.id) if kept is None else kept.value
                if is_new and before is not None:
                    raise IllegalTransition(f"there is a rule {rule.id} already; change it")
                return rule, told(self._actor, f"saved rule {rule.id}", _rule_changes(before, rule))

            return RULES.change(store, reader, rule.id, with_event)

        return self._both(work)

    def change_rule(self, rule_id: str, **changes: Unpack[RuleChanges]) -> Rule:
        """Change some of what a rule says; raises RuleNotFound. What is changed of a rule that is always
        there is kept until that rule is removed."""
        fields = _fields(changes)

        def with_event(kept: Kept[Rule] | None) -> tuple[Rule, Event]:
            before = _rule(rule_id, kept)
            after = changed(before, fields)
            return after, told(self._actor, f"changed rule {rule_id}", _rule_changes(before, after))

        return self._both(lambda store, reader: RULES.change(store, reader, rule_id, with_event))

    def remove_rule(self, rule_id: str) -> bool:
        """Remove a rule; one that is always there is as it was at first. Whether there was something to
        remove. An alert of it that is active is resolved with the next look."""
        event = told(self._actor, f"removed rule {rule_id}")
        return self._client.write(lambda store: store.drop_document(RULES.kind, rule_id, event=event))

    # Channels

    def channel(self, name: str) -> Channel | None:
        """A channel with its secret; None if there is none. Through a service, or without its encryption key,
        a mask stands in the place of the secret."""
        kept = self._client.read(lambda reader: CHANNELS.get(reader, name))
        return None if kept is None else kept.value

    def channels(self) -> Sequence[Channel]:
        """All channels by name, with a mask in the place of secrets."""
        return self._client.read(channels_in)

    def save_webhook(
        self,
        name: str,
        url: str,
        *,
        secret: str = "",
        severity: Severity | str = Severity.INFO,
        enabled: bool = True,
    ) -> Channel:
        """Call this address for each alert of at least this severity that is raised or resolved; with a
        secret each call is signed. In the place of another channel of this name."""
        least = severity_of(severity)
        return self.keep_channel(Webhook(name=name, url=url, secret=secret, severity=least, enabled=enabled))

    def save_email(
        self,
        name: str,
        to: Sequence[str],
        *,
        sender: str,
        host: str,
        **options: Unpack[MailOptions],
    ) -> Channel:
        """Send a mail to these people by way of this server."""
        if isinstance(to, str):
            raise ConfigError(f"to is a list of addresses: write to=[{to!r:.60}]")
        fields: dict[str, Any] = {**options}
        unknown = sorted(fields.keys() - set(Mail.__struct_fields__))
        if unknown:
            raise ConfigError(f"a channel of mails has no {', '.join(unknown)}")
        if "tls" in fields:
            fields["tls"] = _one_of(Tls, fields["tls"], "tls")
        if "severity" in fields:
            fields["severity"] = severity_of(fields["severity"])
        return self.keep_channel(Mail(name=name, to=tuple(to), sender=sender, host=host, **fields))

    def keep_channel(self, channel: Channel) -> Channel:
        """Save a channel that is made; answers it with a mask in the place of its secret. Raises ConfigError
        for one with masks."""
        if channel.is_masked:
            raise ConfigError(
                f"channel {channel.name}: {MASK} stands for a value that is hidden, or encrypted with a key "
                "that this process lacks; give the value itself"
            )

        def work(store: Store, reader: Reader) -> Channel:
            known = CHANNELS.all(reader)
            if channel.name not in known and len(known) >= MAX_CHANNELS:
                raise ConfigError(f"there are {MAX_CHANNELS} channels, and there can be no more")

            def with_event(kept: Kept[Channel] | None) -> tuple[Channel, Event]:
                changes = _channel_changes(kept.value if kept else None, channel)
                return channel, told(self._actor, f"saved channel {channel.name}", changes)

            return CHANNELS.change(store, reader, channel.name, with_event).shown()

        return self._both(work)

    def remove_channel(self, name: str) -> bool:
        """Tell nobody by this channel any more; whether there was one."""
        event = told(self._actor, f"removed channel {name}")
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
        return await self._client.offloaded(
            self.list, severity=severity, acknowledged=acknowledged, active=active, limit=limit
        )

    async def acknowledge_async(self, alert_id: str) -> Alert:
        """`acknowledge` for coroutines."""
        return await self._client.offloaded(self.acknowledge, alert_id)

    async def resolve_async(self, alert_id: str) -> Alert:
        """`resolve` for coroutines."""
        return await self._client.offloaded(self.resolve, alert_id)

    async def trigger_async(
        self,
        kind: str,
        message: str,
        *,
        severity: Severity | str = Severity.WARNING,
        details: Mapping[str, Any] | None = None,
    ) -> Alert:
        """`trigger` for coroutines."""
        return await self._client.offloaded(self.trigger, kind, message, severity=severity, details=details)

    # How

    def _both(self, work: Callable[[Store, Reader], T]) -> T:
        return self._client.write(lambda store: self._client.read(lambda reader: work(store, reader)))


def alerts_in(
    reader: Reader, severity: Severity | None, acknowledged: bool | None, active: bool | None
) -> Sequence[Alert]:
    """Alerts that fit, newest first."""
    found = [
        kept.value
        for kept in ALERTS.all(reader).values()
        if severity in (None, kept.value.severity)
        and acknowledged in (None, kept.value.acknowledged_at is not None)
        and active in (None, kept.value.is_active)
    ]
    return sorted(found, key=lambda alert: (alert.triggered_at, alert.id), reverse=True)


def channels_in(reader: Reader) -> Sequence[Channel]:
    """All channels by name, with a mask in the place of secrets."""
    return [kept.value.shown() for kept in CHANNELS.all(reader).values()]


def severity_of(value: Severity | str) -> Severity:
    """A severity by its name; raises ConfigError."""
    return _one_of(Severity, value, "severity")


Choice = TypeVar("Choice", Severity, Each, Tls)


def _one_of(kind: type[Choice], value: object, name: str) -> Choice:
    try:
        return kind(str(value).lower())
    except ValueError:
        raise ConfigError(f"{value!r:.60} is no {name}: there are {', '.join(kind)}") from None


def _fields(options: RuleOptions | RuleChanges) -> dict[str, Any]:
    """Options of a call as the fields of a rule."""
    fields: dict[str, Any] = dict(options)
    for name in _LENGTHS:
        if name in fields:
            fields[f"{name}_ms"] = length_within(name, fields.pop(name), 0, 7 * DAY_MS)
    if "severity" in fields:
        fields["severity"] = severity_of(fields["severity"])
    if fields.get("each") is not None:
        fields["each"] = _one_of(Each, fields["each"], "scope")
    unknown = sorted(fields.keys() - set(Rule.__struct_fields__))
    if unknown:
        raise ConfigError(f"a rule has no {', '.join(unknown)}")
    return fields


def _found(alert_id: str, kept: Kept[Alert] | None) -> Kept[Alert]:
    if kept is None:
        raise AlertNotFound(f"there is no alert {alert_id!r:.60}; `forebay alerts` lists those there are")
    return kept


def _rule(rule_id: str, kept: Kept[Rule] | None) -> Rule:
    found = USUAL_RULES.get(rule_id) if kept is None else kept.value
    if found is None:
        raise RuleNotFound(f"there is no rule {rule_id!r:.60}; `forebay alerts rules` lists those there are")
    return found


def _rule_changes(before: Rule | None, after: Rule) -> Changes:
    return changes_between(
        None if before is None else msgspec.to_builtins(before), msgspec.to_builtins(after)
    )


def _channel_changes(before: Channel | None, after: Channel) -> Changes:
    """Without secrets, of which it is only said that they were changed."""
    if before == after:
        return {}
    changes = changes_between(
        None if before is None else msgspec.to_builtins(before.shown()), msgspec.to_builtins(after.shown())
    )
    return changes or {"secret": (None, "changed")}
