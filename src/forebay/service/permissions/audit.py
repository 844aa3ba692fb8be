"""Permission checks for the audit log, which belongs to no queue."""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.audit import AuditCheckRequest, AuditCheckResponse, AuditRequest, AuditResponse


async def audit(permit: AuthorizedRequest, data: AuditRequest) -> AuditResponse:
    """Search the audit log, newest first, with the values before and after each change."""
    return await permit.authorize("audit").audit.audit(data)


async def check_audit(permit: AuthorizedRequest, data: AuditCheckRequest) -> AuditCheckResponse:
    """Check that no entry of the audit log was changed or removed."""
    return await permit.authorize("check_audit").audit.check_audit(data)
