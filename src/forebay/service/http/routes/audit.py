"""Routes for the audit log."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import audit as permitted
from forebay.service.schema.audit import AuditCheckRequest, AuditCheckResponse, AuditRequest, AuditResponse


@post("/v1/audit/search", tags=["audit"], status_code=200)
async def audit(request: HttpRequest, data: JSONBody[AuditRequest]) -> AuditResponse:
    """Search the audit log, newest first, with the values before and after each change."""
    return await permitted.audit(permit_of(request), data)


@post("/v1/audit/verify", tags=["audit"], status_code=200)
async def check_audit(request: HttpRequest, data: JSONBody[AuditCheckRequest]) -> AuditCheckResponse:
    """Check that no entry of the audit log was changed or removed."""
    return await permitted.check_audit(permit_of(request), data)


ROUTES = (audit, check_audit)
