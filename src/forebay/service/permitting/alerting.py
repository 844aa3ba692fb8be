"""Who may see alerts, acknowledge them, and say what they are about. They are about all queues."""

from __future__ import annotations

from forebay.domain.alert import Severity
from forebay.service.permitting.permit import Permit
from forebay.service.schema.alerting import (
    AlertList,
    AlertShape,
    ChannelList,
    ChannelRequest,
    ChannelShape,
    NewRuleRequest,
    RuleList,
    RuleRequest,
    RuleShape,
    TriggerRequest,
)
from forebay.service.schema.steering import Answered


async def alerts(
    permit: Permit,
    *,
    severity: Severity | None = None,
    acknowledged: bool = False,
    everything: bool = False,
    active: bool | None = None,
    limit: int = 50,
) -> AlertList:
    """List alerts, newest first."""
    wanted = None if everything else acknowledged
    return await permit.allowed("alerts").alerting.alerts(severity, wanted, active, limit)


async def acknowledge_alert(permit: Permit, alert_id: str) -> AlertShape:
    """Say that somebody has seen an alert."""
    return await permit.allowed("acknowledge_alert").alerting.acknowledge(alert_id, permit.actor)


async def resolve_alert(permit: Permit, alert_id: str) -> AlertShape:
    """Say that an alert is over."""
    return await permit.allowed("resolve_alert").alerting.resolve(alert_id, permit.actor)


async def trigger_alert(permit: Permit, data: TriggerRequest) -> AlertShape:
    """Raise an alert by hand."""
    return await permit.allowed("trigger_alert").alerting.trigger(data, permit.actor)


async def alert_rules(permit: Permit) -> RuleList:
    """List the rules of alerts."""
    return await permit.allowed("alert_rules").alerting.rules()


async def create_alert_rule(permit: Permit, data: NewRuleRequest) -> RuleShape:
    """Make a rule of alerts."""
    return await permit.allowed("create_alert_rule").alerting.create_rule(data, permit.actor)


async def save_alert_rule(permit: Permit, rule_id: str, data: RuleRequest) -> RuleShape:
    """Make a rule of alerts, or change one."""
    return await permit.allowed("save_alert_rule").alerting.save_rule(rule_id, data, permit.actor)


async def remove_alert_rule(permit: Permit, rule_id: str) -> Answered:
    """Remove a rule of alerts."""
    return await permit.allowed("remove_alert_rule").alerting.remove_rule(rule_id, permit.actor)


async def alert_channels(permit: Permit) -> ChannelList:
    """List who is told of alerts, without secrets."""
    return await permit.allowed("alert_channels").alerting.channels()


async def save_alert_channel(permit: Permit, name: str, data: ChannelRequest) -> ChannelShape:
    """Say who is told of alerts, and how."""
    return await permit.allowed("save_alert_channel").alerting.save_channel(name, data, permit.actor)


async def remove_alert_channel(permit: Permit, name: str) -> Answered:
    """Tell nobody by a channel any more."""
    return await permit.allowed("remove_alert_channel").alerting.remove_channel(name, permit.actor)
