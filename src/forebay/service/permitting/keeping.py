"""What administrators may do to API keys, and see of the audit log. None of these belongs to a queue."""

from __future__ import annotations

from forebay.service.permitting.permit import Permit
from forebay.service.schema.keeping import (
    AuditAnswer,
    AuditChecked,
    AuditCheckRequest,
    AuditRequest,
    KeyList,
    KeyMade,
    KeyRequest,
    KeyShape,
    RotateRequest,
)


async def keys(permit: Permit) -> KeyList:
    """List the API keys, without their secrets."""
    return await permit.allowed("keys").keeping.keys()


async def key(permit: Permit, name: str) -> KeyShape:
    """Show what an API key is for."""
    return await permit.allowed("key").keeping.key(name)


async def create_key(permit: Permit, data: KeyRequest) -> KeyMade:
    """Make an API key, and tell its token this once."""
    return await permit.allowed("create_key").keeping.create_key(data, permit.actor)


async def rotate_key(permit: Permit, name: str, data: RotateRequest) -> KeyMade:
    """Give an API key another secret, and tell its new token this once."""
    return await permit.allowed("rotate_key").keeping.rotate_key(name, data, permit.actor)


async def revoke_key(permit: Permit, name: str) -> KeyShape:
    """Let an API key open nothing any more."""
    return await permit.allowed("revoke_key").keeping.revoke_key(name, permit.actor)


async def audit(permit: Permit, data: AuditRequest) -> AuditAnswer:
    """List who did what, newest first."""
    return await permit.allowed("audit").keeping.audit(data)


async def check_audit(permit: Permit, data: AuditCheckRequest) -> AuditChecked:
    """Check that no line of the audit log was changed or removed."""
    return await permit.allowed("check_audit").keeping.check_audit(data)
