"""Routes for alerts, alert rules and alert channels."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post, put
from litestar.params import JSONBody, PathParameter, QueryParameter

from forebay.domain.alert import Severity
from forebay.domain.job_query import MAX_PAGE
from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import alerts as permitted
from forebay.service.schema.alerts import (
    CHANNEL_NAME,
    RULE_ID,
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

AlertPath = Annotated[
    str,
    PathParameter(
        description="The id of an alert.", min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]*$"
    ),
]
RulePath = Annotated[str, PathParameter(description="The id of a rule.", pattern=RULE_ID)]
ChannelPath = Annotated[str, PathParameter(description="The name of a channel.", pattern=CHANNEL_NAME)]
SeverityQuery = Annotated[Severity | None, QueryParameter(description="Of this severity.")]
AcknowledgedQuery = Annotated[bool, QueryParameter(description="Acknowledged ones, instead of the others.")]
AllQuery = Annotated[bool, QueryParameter(name="all", description="Acknowledged or not.")]
ActiveQuery = Annotated[bool | None, QueryParameter(description="Active ones, or resolved ones.")]
LimitQuery = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="At most this number.")]


@get("/v1/alerts", tags=["alerts"])
async def alerts(
    request: HttpRequest,
    severity: SeverityQuery = None,
    acknowledged: AcknowledgedQuery = False,
    include_all: AllQuery = False,
    active: ActiveQuery = None,
    limit: LimitQuery = 50,
) -> AlertList:
    """List alerts, newest first; by default those that are not acknowledged."""
    return await permitted.alerts(
        permit_of(request),
        severity=severity,
        acknowledged=acknowledged,
        include_all=include_all,
        active=active,
        limit=limit,
    )


@post("/v1/alerts", tags=["alerts"])
async def trigger_alert(request: HttpRequest, data: JSONBody[TriggerRequest]) -> AlertView:
    """Raise an alert by hand; it is active until it is resolved."""
    return await permitted.trigger_alert(permit_of(request), data)


@post("/v1/alerts/{alert_id:str}/acknowledge", tags=["alerts"], status_code=200)
async def acknowledge_alert(request: HttpRequest, alert_id: AlertPath) -> AlertView:
    """Acknowledge an alert."""
    return await permitted.acknowledge_alert(permit_of(request), alert_id)


@post("/v1/alerts/{alert_id:str}/resolve", tags=["alerts"], status_code=200)
async def resolve_alert(request: HttpRequest, alert_id: AlertPath) -> AlertView:
    """Resolve an alert; it is raised again after the cooldown if its condition still holds."""
    return await permitted.resolve_alert(permit_of(request), alert_id)


@get("/v1/alert-rules", tags=["alerts"])
async def alert_rules(request: HttpRequest) -> AlertRuleList:
    """List alert rules, and the metrics that they may use."""
    return await permitted.alert_rules(permit_of(request))


@post("/v1/alert-rules", tags=["alerts"])
async def create_alert_rule(request: HttpRequest, data: JSONBody[NewRuleRequest]) -> AlertRuleView:
    """Create an alert rule."""
    return await permitted.create_alert_rule(permit_of(request), data)


@put("/v1/alert-rules/{rule_id:str}", tags=["alerts"])
async def save_alert_rule(
    request: HttpRequest, rule_id: RulePath, data: JSONBody[RuleRequest]
) -> AlertRuleView:
    """Create or replace an alert rule."""
    return await permitted.save_alert_rule(permit_of(request), rule_id, data)


@delete("/v1/alert-rules/{rule_id:str}", tags=["alerts"], status_code=200)
async def remove_alert_rule(request: HttpRequest, rule_id: RulePath) -> ChangeResponse:
    """Remove an alert rule; a built-in one is reset to its default."""
    return await permitted.remove_alert_rule(permit_of(request), rule_id)


@get("/v1/alert-channels", tags=["alerts"])
async def alert_channels(request: HttpRequest) -> ChannelList:
    """List alert channels, without their secrets."""
    return await permitted.alert_channels(permit_of(request))


@put("/v1/alert-channels/{name:str}", tags=["alerts"])
async def save_alert_channel(
    request: HttpRequest, name: ChannelPath, data: JSONBody[ChannelRequest]
) -> ChannelView:
    """Create or replace an alert channel."""
    return await permitted.save_alert_channel(permit_of(request), name, data)


@delete("/v1/alert-channels/{name:str}", tags=["alerts"], status_code=200)
async def remove_alert_channel(request: HttpRequest, name: ChannelPath) -> ChangeResponse:
    """Remove an alert channel."""
    return await permitted.remove_alert_channel(permit_of(request), name)


ROUTES = (
    *(alerts, trigger_alert, acknowledge_alert, resolve_alert),
    *(alert_rules, create_alert_rule, save_alert_rule, remove_alert_rule),
    *(alert_channels, save_alert_channel, remove_alert_channel),
)
