"""Permission checks for alerts, alert rules and channels, which belong to no queue."""

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
    """List alerts, newest first; by default those that are not acknowledged."""
    wanted = None if include_all else acknowledged
    return await permit.authorize("alerts").alerts.alerts(severity, wanted, active, limit)


async def acknowledge_alert(permit: AuthorizedRequest, alert_id: str) -> AlertView:
    """Acknowledge an alert."""
    return await permit.authorize("acknowledge_alert").alerts.acknowledge(alert_id, permit.actor)


async def resolve_alert(permit: AuthorizedRequest, alert_id: str) -> AlertView:
    """Resolve an alert; it is raised again after the cooldown if its condition still holds."""
    return await permit.authorize("resolve_alert").alerts.resolve(alert_id, permit.actor)


async def trigger_alert(permit: AuthorizedRequest, data: TriggerRequest) -> AlertView:
    """Raise an alert by hand; it is active until it is resolved."""
    return await permit.authorize("trigger_alert").alerts.trigger(data, permit.actor)


async def alert_rules(permit: AuthorizedRequest) -> AlertRuleList:
    """List alert rules, and the metrics that they may use."""
    return await permit.authorize("alert_rules").alerts.rules()


async def create_alert_rule(permit: AuthorizedRequest, data: NewRuleRequest) -> AlertRuleView:
    """Create an alert rule."""
    return await permit.authorize("create_alert_rule").alerts.create_rule(data, permit.actor)


async def save_alert_rule(permit: AuthorizedRequest, rule_id: str, data: RuleRequest) -> AlertRuleView:
    """Create or replace an alert rule."""
    return await permit.authorize("save_alert_rule").alerts.save_rule(rule_id, data, permit.actor)


async def remove_alert_rule(permit: AuthorizedRequest, rule_id: str) -> ChangeResponse:
    """Remove an alert rule; a built-in one is reset to its default."""
    return await permit.authorize("remove_alert_rule").alerts.remove_rule(rule_id, permit.actor)


async def alert_channels(permit: AuthorizedRequest) -> ChannelList:
    """List alert channels, without their secrets."""
    return await permit.authorize("alert_channels").alerts.channels()


async def save_alert_channel(permit: AuthorizedRequest, name: str, data: ChannelRequest) -> ChannelView:
    """Create or replace an alert channel."""
    return await permit.authorize("save_alert_channel").alerts.save_channel(name, data, permit.actor)


async def remove_alert_channel(permit: AuthorizedRequest, name: str) -> ChangeResponse:
    """Remove an alert channel."""
    return await permit.authorize("remove_alert_channel").alerts.remove_channel(name, permit.actor)
