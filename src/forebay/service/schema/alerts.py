"""Alerts, alert rules and alert channels."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from forebay.domain.alert import MAX_MESSAGE, MAX_RULE_NAME, Alert, AlertRule, AlertScope, Severity
from forebay.domain.alert_channel import (
    MAX_RECEIVERS,
    MAX_SECRET,
    MAX_URL,
    Channel,
    MailChannel,
    TlsMode,
    WebhookChannel,
)
from forebay.domain.alert_condition import MAX_CONDITION
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.job import DAY_MS
from forebay.domain.metrics import TEN_SECONDS
from forebay.errors import InvalidJob
from forebay.service.schema.base import (
    Queue,
    RequestModel,
    ResponseModel,
    Task,
    Values,
    at,
    length,
    moment_of,
)

RULE_ID = "^[a-z0-9][a-z0-9_.-]{0,49}$"
CHANNEL_NAME = "^[A-Za-z0-9_.-]{1,50}$"
_LINE = "^[^\\x00-\\x1f\\x7f]*$"
_Text = Annotated[str, Meta(min_length=1, max_length=200, pattern=_LINE)]
_Secret = Annotated[str, Meta(max_length=MAX_SECRET)]


class AlertView(ResponseModel, frozen=True, kw_only=True):
    """Alert. `source` is its queue or task, else its rule; without a rule it was raised by hand. `metadata`
    has the values that the condition has read."""

    id: str
    severity: Severity
    source: str
    message: str
    condition: str
    rule: str | None
    is_active: bool
    triggered_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str
    resolved_at: datetime | None
    resolved_by: str
    metadata: Values


class AlertList(ResponseModel, frozen=True, kw_only=True):
    """Alerts, newest first."""

    alerts: list[AlertView]


class TriggerRequest(RequestModel, frozen=True, kw_only=True):
    """Alert raised by hand."""

    kind: Annotated[str, Meta(min_length=1, max_length=MAX_RULE_NAME, pattern=_LINE)]
    message: Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE, pattern=_LINE)]
    severity: Severity = Severity.WARNING
    details: Values = field(default_factory=dict)


class RuleRequest(RequestModel, frozen=True, kw_only=True):
    """Alert rule: its condition reads the last `window_seconds`, and must hold for `hold_for_seconds`.
    `queue` and `task` restrict it; `per` evaluates it for each queue, or each task."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_RULE_NAME, pattern=_LINE)]
    condition: Annotated[str, Meta(min_length=1, max_length=MAX_CONDITION)]
    severity: Severity = Severity.WARNING
    window_seconds: Annotated[float, Meta(ge=TEN_SECONDS / 1_000, le=DAY_MS / 1_000)] = 300
    hold_for_seconds: Annotated[float, Meta(ge=0, le=DAY_MS / 1_000)] = 0
    cooldown_seconds: Annotated[float, Meta(ge=0, le=7 * DAY_MS / 1_000)] = 300
    enabled: bool = True
    queue: Queue | None = None
    task: Task | None = None
    per: AlertScope | None = None

    def rule(self, rule_id: str) -> AlertRule:
        """Return the rule for the store; raises ConfigError."""
        return AlertRule(
            id=rule_id,
            name=self.name,
            condition=self.condition,
            severity=self.severity,
            window_ms=length(self.window_seconds) or 0,
            hold_for_ms=length(self.hold_for_seconds) or 0,
            cooldown_ms=length(self.cooldown_seconds) or 0,
            enabled=self.enabled,
            queue=self.queue,
            task=self.task,
            per=self.per,
        )


class NewRuleRequest(RuleRequest, frozen=True, kw_only=True):
    """New alert rule; without an `id` it gets one."""

    id: Annotated[str, Meta(pattern=RULE_ID)] | None = None


class AlertRuleView(ResponseModel, frozen=True, kw_only=True):
    """Alert rule. An `is_builtin` one always exists; removing it resets it to its default."""

    id: str
    name: str
    condition: str
    severity: Severity
    window_seconds: float
    hold_for_seconds: float
    cooldown_seconds: float
    enabled: bool
    queue: str | None
    task: str | None
    per: AlertScope | None
    is_builtin: bool


class AlertRuleList(ResponseModel, frozen=True, kw_only=True):
    """Rules by id, and the metrics that conditions may use with their descriptions."""

    rules: list[AlertRuleView]
    metrics: dict[str, str]


class ChannelRequest(RequestModel, frozen=True, kw_only=True):
    """Receivers of alerts of at least this severity: a webhook (`url`, `secret`), or mail addresses (`to`,
    `sender`, `host` and so on).

    An address that is left out stays. So does a secret or password, unless its server changes: the scheme,
    host or port of the URL, or `host`, `port`, `tls` or `username`. Then it must be given again; an empty one
    removes it. It may be `env:NAME` or `file:PATH`, read by the process that delivers.
    """

    kind: Literal["webhook", "email"]
    severity: Severity = Severity.INFO
    enabled: bool = True
    url: Annotated[str, Meta(min_length=1, max_length=MAX_URL)] | None = None
    secret: _Secret | None = None
    to: Annotated[list[_Text], Meta(max_length=MAX_RECEIVERS)] = field(default_factory=list)
    sender: _Text | None = None
    host: _Text | None = None
    port: Annotated[int, Meta(ge=1, le=65_535)] = 587
    tls: TlsMode = TlsMode.STARTTLS
    username: Annotated[str, Meta(max_length=200)] = ""
    password: _Secret | None = None

    def channel(self, name: str, known: Channel | None) -> Channel:
        """Return the channel for the store, in place of the known one; raises its errors."""
        if self.kind == "webhook":
            return self._webhook(name, known if isinstance(known, WebhookChannel) else None)
        return self._mail(name, known if isinstance(known, MailChannel) else None)

    def _webhook(self, name: str, old: WebhookChannel | None) -> WebhookChannel:
        new = WebhookChannel(
            name=name,
            url=_require_value("url", self.url, old.url if old else None),
            secret=_require_value("secret", self.secret, old.secret if old else ""),
            severity=self.severity,
            enabled=self.enabled,
        )
        if self.secret is None and old is not None:
            _check_secret_target("secret", old.secret, old.destination, new.destination)
        return new

    def _mail(self, name: str, old: MailChannel | None) -> MailChannel:
        new = MailChannel(
            name=name,
            to=tuple(self.to) or (old.to if old else ()),
            sender=_require_value("sender", self.sender, old.sender if old else None),
            host=_require_value("host", self.host, old.host if old else None),
            port=self.port,
            tls=self.tls,
            username=self.username,
            password=_require_value("password", self.password, old.password if old else ""),
            severity=self.severity,
            enabled=self.enabled,
        )
        if self.password is None and old is not None:
            _check_secret_target("password", old.password, old.destination, new.destination)
        return new


class ChannelView(ResponseModel, frozen=True, kw_only=True):
    """Alert channel, with masks in place of secrets."""

    name: str
    kind: Literal["webhook", "email"]
    severity: Severity
    enabled: bool
    url: str | None = None
    secret: str | None = None
    to: list[str] = field(default_factory=list)
    sender: str | None = None
    host: str | None = None
    port: int | None = None
    tls: TlsMode | None = None
    username: str | None = None
    password: str | None = None


class ChannelList(ResponseModel, frozen=True, kw_only=True):
    """Channels by name."""

    channels: list[ChannelView]


def _require_value(name: str, value: str | None, known: str | None) -> str:
    found = known if value is None else value
    if found is None:
        raise InvalidJob(f"a channel of this kind needs {name}", field=name)
    return found


def _check_secret_target(
    field: str, secret: str, before: tuple[object, ...], after: tuple[object, ...]
) -> None:
    """Raise InvalidJob if a stored secret would go to another server: a stolen API key could have it sent to
    any host."""
    if secret and before != after:
        raise InvalidJob(
            f"the {field} was given for another server and is not sent to this one; give it again, "
            'or "" for none',
            field=field,
        )


def alert_view(alert: Alert) -> AlertView:
    return AlertView(
        id=alert.id,
        severity=alert.severity,
        source=alert.source,
        message=alert.message,
        condition=alert.condition,
        rule=alert.rule,
        is_active=alert.is_active,
        triggered_at=moment_of(alert.triggered_at),
        acknowledged_at=at(alert.acknowledged_at),
        acknowledged_by=alert.acknowledged_by,
        resolved_at=at(alert.resolved_at),
        resolved_by=alert.resolved_by,
        metadata=alert.metadata,
    )


def rule_view(rule: AlertRule) -> AlertRuleView:
    return AlertRuleView(
        id=rule.id,
        name=rule.name,
        condition=rule.condition,
        severity=rule.severity,
        window_seconds=rule.window_ms / 1_000,
        hold_for_seconds=rule.hold_for_ms / 1_000,
        cooldown_seconds=rule.cooldown_ms / 1_000,
        enabled=rule.enabled,
        queue=rule.queue,
        task=rule.task,
        per=rule.per,
        is_builtin=rule.id in DEFAULT_ALERT_RULES,
    )


def channel_view(channel: Channel) -> ChannelView:
    """Return the view of a masked channel: see `Channel.public_view`."""
    own: dict[str, Any] = {name: getattr(channel, name) for name in channel.__struct_fields__}
    if isinstance(channel, MailChannel):
        return ChannelView(kind="email", **{**own, "to": list(channel.to)})
    return ChannelView(kind="webhook", **own)
