"""Who may see alerts, acknowledge them, and say what they are about. They are about all queues."""

from __future__ import annotations

from forebay.domain.alert import Severity
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.alerts import (
    AlertList,
    AlertRuleList,
    AlertRuleView,
    AlertView,
    ChannelList,
    ChannelRequest,
    ChannelView,
    NewRuleRequest,
    RuleRequest,
    TriggerRequest,
)
from forebay.service.schema.base import ChangeResponse


async def alerts(
    permit: AuthorizedRequest,
    *,
    severity: Severity | None = None,
    acknowledged: bool = False,
    include_all: bool = False,
    active: bool | None = None,
    limit: int = 50,
) -> AlertList:
    """List alerts, newest first."""
    wanted = None if include_all else acknowledged
    return await permit.authorize("alerts").alerts.alerts(severity, wanted, active, limit)


async def acknowledge_alert(permit: AuthorizedRequest, alert_id: str) -> AlertView:
    """Say that somebody has seen an alert."""
    return await permit.authorize("acknowledge_alert").alerts.acknowledge(alert_id, permit.actor)


async def resolve_alert(permit: AuthorizedRequest, alert_id: str) -> AlertView:
    """Say that an alert is over."""
    return await permit.authorize("resolve_alert").alerts.resolve(alert_id, permit.actor)


async def trigger_alert(permit: AuthorizedRequest, data: TriggerRequest) -> AlertView:
    """Raise an alert by hand."""
    return await permit.authorize("trigger_alert").alerts.trigger(data, permit.actor)


async def alert_rules(permit: AuthorizedRequest) -> AlertRuleList:
    """List the rules of alerts."""
    return await permit.authorize("alert_rules").alerts.rules()


async def create_alert_rule(permit: AuthorizedRequest, data: NewRuleRequest) -> AlertRuleView:
    """Make a rule of alerts."""
    return await permit.authorize("create_alert_rule").alerts.create_rule(data, permit.actor)


async def save_alert_rule(permit: AuthorizedRequest, rule_id: str, data: RuleRequest) -> AlertRuleView:
    """Make a rule of alerts, or change one."""
    return await permit.authorize("save_alert_rule").alerts.save_rule(rule_id, data, permit.actor)


async def remove_alert_rule(permit: AuthorizedRequest, rule_id: str) -> ChangeResponse:
    """Remove a rule of alerts."""
    return await permit.authorize("remove_alert_rule").alerts.remove_rule(rule_id, permit.actor)


async def alert_channels(permit: AuthorizedRequest) -> ChannelList:
    """List who is told of alerts, without secrets."""
    return await permit.authorize("alert_channels").alerts.channels()


async def save_alert_channel(permit: AuthorizedRequest, name: str, data: ChannelRequest) -> ChannelView:
    """Say who is told of alerts, and how."""
    return await permit.authorize("save_alert_channel").alerts.save_channel(name, data, permit.actor)


async def remove_alert_channel(permit: AuthorizedRequest, name: str) -> ChangeResponse:
    """Tell nobody by a channel any more."""
    return await permit.authorize("remove_alert_channel").alerts.remove_channel(name, permit.actor)
