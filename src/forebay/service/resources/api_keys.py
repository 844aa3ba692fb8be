"""API keys: list, create, rotate and revoke."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from forebay.app.client import Client
from forebay.service.api_keys import ApiKeyAdmin, all_keys
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.api_keys import (
    KeyList,
    KeyRequest,
    KeyView,
    KeyWithToken,
    RotateRequest,
    key_view,
    key_with_token,
)
from forebay.service.schema.base import length
from forebay.stores.contract.reader import Reader

T = TypeVar("T")


class KeyResource:
    """API keys of the store. Servers cache keys, so a change reaches all of them within seconds."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def keys(self) -> KeyList:
        """Return all keys by name."""

        def load(reader: Reader) -> KeyList:
            now = reader.now()
            return KeyList(keys=[key_view(stored.key, now) for stored in all_keys(reader)])

        return await self._pool.read(load)

    async def key(self, name: str) -> KeyView:
        """Return one key; raises ApiKeyNotFound."""
        return await self._with_keys(lambda keys, now: key_view(keys.get(name), now), "")

    async def create_key(self, request: KeyRequest, actor: str = "") -> KeyWithToken:
        """Create a key; raises IllegalTransition if there is one of this name."""
        permissions: dict[str, Any] = request.parse_grants()._asdict()

        def create(keys: ApiKeyAdmin, now: int) -> KeyWithToken:
            new_key = keys.create(
                request.name,
                **permissions,
                lasts_ms=length(request.lasts_seconds),
                rate=request.rate,
                burst=request.burst,
                quota=request.quota,
            )
            return key_with_token(new_key, now)

        return await self._with_keys(create, actor)

    async def rotate_key(self, name: str, request: RotateRequest, actor: str = "") -> KeyWithToken:
        """Give a key a new secret; raises ApiKeyNotFound, or IllegalTransition for a revoked one."""
        grace_ms = length(request.grace_seconds) or 0
        return await self._with_keys(
            lambda keys, now: key_with_token(keys.rotate(name, grace_ms=grace_ms), now), actor
        )

    async def revoke_key(self, name: str, actor: str = "") -> KeyView:
        """Revoke a key; raises as `rotate_key` does."""
        return await self._with_keys(lambda keys, now: key_view(keys.revoke(name), now), actor)

    async def _with_keys(self, call: Callable[[ApiKeyAdmin, int], T], actor: str) -> T:
        def use(client: Client) -> T:
            return client.write(
                lambda store: client.read(
                    lambda reader: call(ApiKeyAdmin(store, reader, actor=actor), reader.now())
                )
            )

        return await self._pool.use(use)
