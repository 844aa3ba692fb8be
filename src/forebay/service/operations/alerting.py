"""What operators ask for about alerts, and administrators about their rules and channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from forebay.app.alert_records import all_rules
from forebay.app.alerts import Alerts, alerts_in, channels_in
from forebay.domain.alert import KNOWN, Severity
from forebay.service.operations.desk import Desk
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
    alert_shape,
    channel_shape,
    rule_shape,
)
from forebay.service.schema.steering import Answered
from forebay.stores.ids import new_id

T = TypeVar("T")


class Alerting:
    """Alerts, rules and channels."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def alerts(
        self, severity: Severity | None, acknowledged: bool | None, active: bool | None, limit: int
    ) -> AlertList:
        """Alerts that fit, newest first."""
        found = await self._desk.read(lambda reader: alerts_in(reader, severity, acknowledged, active))
        return AlertList(alerts=[alert_shape(one) for one in found[:limit]])

    async def acknowledge(self, alert_id: str, actor: str = "") -> AlertShape:
        """Say that somebody has seen it; raises AlertNotFound."""
        return alert_shape(await self._with(lambda alerts: alerts.acknowledge(alert_id), actor))

    async def resolve(self, alert_id: str, actor: str = "") -> AlertShape:
        """Say that it is over; raises AlertNotFound."""
        return alert_shape(await self._with(lambda alerts: alerts.resolve(alert_id), actor))

    async def trigger(self, request: TriggerRequest, actor: str = "") -> AlertShape:
        """Raise an alert by hand."""
        alert = await self._with(
            lambda alerts: alerts.trigger(
                request.kind, request.message, severity=request.severity, details=request.details
            ),
            actor,
        )
        return alert_shape(alert)

    # Rules

    async def rules(self) -> RuleList:
        """All rules by id."""
        found = await self._desk.read(all_rules)
        return RuleList(
            rules=[rule_shape(one) for one in found.values()], metrics=dict(sorted(KNOWN.items()))
        )

    async def create_rule(self, request: NewRuleRequest, actor: str = "") -> RuleShape:
        """Make a rule; raises IllegalTransition where there is one of this id."""
        rule = request.rule(new_id().lower() if request.id is None else request.id)
        return rule_shape(await self._with(lambda alerts: alerts.keep_rule(rule, is_new=True), actor))

    async def save_rule(self, rule_id: str, request: RuleRequest, actor: str = "") -> RuleShape:
        """Make a rule, or say what the one of this id is from now on."""
        rule = request.rule(rule_id)
        return rule_shape(await self._with(lambda alerts: alerts.keep_rule(rule), actor))

    async def remove_rule(self, rule_id: str, actor: str = "") -> Answered:
        """Remove a rule, or take changes of a usual one back; raises RuleNotFound."""

        def remove(alerts: Alerts) -> bool:
            alerts.rule(rule_id)
            return alerts.remove_rule(rule_id)

        return Answered(done=await self._with(remove, actor))

    # Channels

    async def channels(self) -> ChannelList:
        """All channels by name, without their secrets."""
        found = await self._desk.read(channels_in)
        return ChannelList(channels=[channel_shape(one) for one in found])

    async def save_channel(self, name: str, request: ChannelRequest, actor: str = "") -> ChannelShape:
        """Make a channel, or say what the one of this name is from now on."""
        saved = await self._with(
            lambda alerts: alerts.keep_channel(request.channel(name, alerts.channel(name))), actor
        )
        return channel_shape(saved)

    async def remove_channel(self, name: str, actor: str = "") -> Answered:
        """Tell nobody by it any more; whether there was one."""
        return Answered(done=await self._with(lambda alerts: alerts.remove_channel(name), actor))

    async def _with(self, call: Callable[[Alerts], T], actor: str = "") -> T:
        clock = self._desk.clock
        return await self._desk.use(lambda client: call(Alerts(client, clock, actor=actor)))
