"""Permission checks for API keys, which belong to no queue."""

from __future__ import annotations

from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.api_keys import KeyList, KeyRequest, KeyView, KeyWithToken, RotateRequest


async def keys(permit: AuthorizedRequest) -> KeyList:
    """List API keys, without their secrets."""
    return await permit.authorize("keys").keys.keys()


async def key(permit: AuthorizedRequest, name: str) -> KeyView:
    """Show an API key."""
    return await permit.authorize("key").keys.key(name)


async def create_key(permit: AuthorizedRequest, data: KeyRequest) -> KeyWithToken:
    """Create an API key; its token is returned this once."""
    return await permit.authorize("create_key").keys.create_key(data, permit.actor)


async def rotate_key(permit: AuthorizedRequest, name: str, data: RotateRequest) -> KeyWithToken:
    """Give an API key a new secret; the new token is returned this once."""
    return await permit.authorize("rotate_key").keys.rotate_key(name, data, permit.actor)


async def revoke_key(permit: AuthorizedRequest, name: str) -> KeyView:
    """Revoke an API key; servers reject it within five seconds."""
    return await permit.authorize("revoke_key").keys.revoke_key(name, permit.actor)
