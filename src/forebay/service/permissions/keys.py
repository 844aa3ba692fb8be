"""What administrators may do to API keys, and see of the audit log. None of these belongs to a queue."""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.keys import (
    AuditCheckRequest,
    AuditCheckResponse,
    AuditRequest,
    AuditResponse,
    KeyList,
    KeyRequest,
    KeyView,
    KeyWithToken,
    RotateRequest,
)


async def keys(permit: AuthorizedRequest) -> KeyList:
    """List the API keys, without their secrets."""
    return await permit.authorize("keys").keeping.keys()


async def key(permit: AuthorizedRequest, name: str) -> KeyView:
    """Show what an API key is for."""
    return await permit.authorize("key").keeping.key(name)


async def create_key(permit: AuthorizedRequest, data: KeyRequest) -> KeyWithToken:
    """Make an API key, and tell its token this once."""
    return await permit.authorize("create_key").keeping.create_key(data, permit.actor)


async def rotate_key(permit: AuthorizedRequest, name: str, data: RotateRequest) -> KeyWithToken:
    """Give an API key another secret, and tell its new token this once."""
    return await permit.authorize("rotate_key").keeping.rotate_key(name, data, permit.actor)


async def revoke_key(permit: AuthorizedRequest, name: str) -> KeyView:
    """Let an API key open nothing any more."""
    return await permit.authorize("revoke_key").keeping.revoke_key(name, permit.actor)


async def audit(permit: AuthorizedRequest, data: AuditRequest) -> AuditResponse:
    """List who did what, newest first."""
    return await permit.authorize("audit").keeping.audit(data)


async def check_audit(permit: AuthorizedRequest, data: AuditCheckRequest) -> AuditCheckResponse:
    """Check that no line of the audit log was changed or removed."""
    return await permit.authorize("check_audit").keeping.check_audit(data)
