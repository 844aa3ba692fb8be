"""Alerts, alert rules and alert channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from forebay.app.alerts import Alerts, list_alerts, list_channels
from forebay.domain.alert import ALERT_METRICS, Severity
from forebay.operations.alerts.stored_rules_alerts_and_channels import all_rules
from forebay.service.runtime.store_pool import StorePool
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
    alert_view,
    channel_view,
    rule_view,
)
from forebay.service.schema.base import ChangeResponse
from forebay.stores.id_generator import new_id

T = TypeVar("T")


class AlertResource:
    """Alerts of the store, with their rules and channels."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def alerts(
        self, severity: Severity | None, acknowledged: bool | None, active: bool | None, limit: int
    ) -> AlertList:
        """Return matching alerts, newest first."""
        found = await self._pool.read(lambda reader: list_alerts(reader, severity, acknowledged, active))
        return AlertList(alerts=[alert_view(alert) for alert in found[:limit]])

    async def acknowledge(self, alert_id: str, actor: str = "") -> AlertView:
        """Acknowledge an alert; raises AlertNotFound."""
        return alert_view(await self._run(lambda alerts: alerts.acknowledge(alert_id), actor))

    async def resolve(self, alert_id: str, actor: str = "") -> AlertView:
        """Resolve an alert; raises AlertNotFound."""
        return alert_view(await self._run(lambda alerts: alerts.resolve(alert_id), actor))

    async def trigger(self, request: TriggerRequest, actor: str = "") -> AlertView:
        """Raise an alert by hand."""
        alert = await self._run(
            lambda alerts: alerts.trigger(
                request.kind, request.message, severity=request.severity, details=request.details
            ),
            actor,
        )
        return alert_view(alert)

    # Rules

    async def rules(self) -> AlertRuleList:
        """Return all rules by id."""
        found = await self._pool.read(all_rules)
        return AlertRuleList(
            rules=[rule_view(rule) for rule in found.values()], metrics=dict(sorted(ALERT_METRICS.items()))
        )

    async def create_rule(self, request: NewRuleRequest, actor: str = "") -> AlertRuleView:
        """Create a rule; raises IllegalTransition if there is one of this id."""
        rule = request.rule(new_id().lower() if request.id is None else request.id)
        return rule_view(await self._run(lambda alerts: alerts.save_rule(rule, is_new=True), actor))

    async def save_rule(self, rule_id: str, request: RuleRequest, actor: str = "") -> AlertRuleView:
        """Create a rule, or replace the one of this id."""
        rule = request.rule(rule_id)
        return rule_view(await self._run(lambda alerts: alerts.save_rule(rule), actor))

    async def remove_rule(self, rule_id: str, actor: str = "") -> ChangeResponse:
        """Remove a rule, or reset a built-in one to its default; raises AlertRuleNotFound."""

        def remove(alerts: Alerts) -> bool:
            alerts.rule(rule_id)
            return alerts.remove_rule(rule_id)

        return ChangeResponse(applied=await self._run(remove, actor))

    # Channels

    async def channels(self) -> ChannelList:
        """Return all channels by name, without their secrets."""
        found = await self._pool.read(list_channels)
        return ChannelList(channels=[channel_view(channel) for channel in found])

    async def save_channel(self, name: str, request: ChannelRequest, actor: str = "") -> ChannelView:
        """Create a channel, or replace the one of this name."""
        saved = await self._run(
            lambda alerts: alerts.save_channel(request.channel(name, alerts.channel(name))), actor
        )
        return channel_view(saved)

    async def remove_channel(self, name: str, actor: str = "") -> ChangeResponse:
        """Remove a channel, if there is one of this name."""
        return ChangeResponse(applied=await self._run(lambda alerts: alerts.remove_channel(name), actor))

    async def _run(self, call: Callable[[Alerts], T], actor: str = "") -> T:
        clock = self._pool.clock
        return await self._pool.use(lambda client: call(Alerts(client, clock, actor=actor)))
