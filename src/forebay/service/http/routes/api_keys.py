"""Routes for API keys."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, PathParameter

from forebay.service.http.request_context import HttpRequest, permit_of
from forebay.service.permissions import api_keys as permitted
from forebay.service.schema.api_keys import (
    KEY_NAME,
    KeyList,
    KeyRequest,
    KeyView,
    KeyWithToken,
    RotateRequest,
)

KeyPath = Annotated[str, PathParameter(description="The name of an API key.", pattern=KEY_NAME)]


@get("/v1/keys", tags=["keys"])
async def keys(request: HttpRequest) -> KeyList:
    """List API keys, without their secrets."""
    return await permitted.keys(permit_of(request))


@post("/v1/keys", tags=["keys"])
async def create_key(request: HttpRequest, data: JSONBody[KeyRequest]) -> KeyWithToken:
    """Create an API key; its token is returned this once."""
    return await permitted.create_key(permit_of(request), data)


@get("/v1/keys/{name:str}", tags=["keys"])
async def key(request: HttpRequest, name: KeyPath) -> KeyView:
    """Show an API key."""
    return await permitted.key(permit_of(request), name)


@post("/v1/keys/{name:str}/rotate", tags=["keys"], status_code=200)
async def rotate_key(request: HttpRequest, name: KeyPath, data: JSONBody[RotateRequest]) -> KeyWithToken:
    """Give an API key a new secret; the new token is returned this once."""
    return await permitted.rotate_key(permit_of(request), name, data)


@post("/v1/keys/{name:str}/revoke", tags=["keys"], status_code=200)
async def revoke_key(request: HttpRequest, name: KeyPath) -> KeyView:
    """Revoke an API key; servers reject it within five seconds."""
    return await permitted.revoke_key(permit_of(request), name)


ROUTES = (keys, create_key, key, rotate_key, revoke_key)
