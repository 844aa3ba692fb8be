"""What administrators ask for: who may do what, and who did what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from forebay.app.client import Client
from forebay.operations.audit import audit_page
from forebay.operations.audit_check import check_audit
from forebay.service.api_keys import ApiKeyAdmin, all_keys
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import length
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
    audit_check_response,
    audit_response,
    key_view,
    key_with_token,
)
from forebay.stores.contract.reader import Reader

T = TypeVar("T")


class Keeping:
    """API keys and the audit log. Every server believes what it knows of keys for a few seconds."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def keys(self) -> KeyList:
        """All keys by name."""

        def look(reader: Reader) -> KeyList:
            now = reader.now()
            return KeyList(keys=[key_view(kept.key, now) for kept in all_keys(reader)])

        return await self._pool.read(look)

    async def key(self, name: str) -> KeyView:
        """One key; raises ApiKeyNotFound."""
        return await self._with_keys(lambda keys, now: key_view(keys.get(name), now), "")

    async def create_key(self, request: KeyRequest, actor: str = "") -> KeyWithToken:
        """Make a key; raises IllegalTransition where there is one of this name."""
        allowed: dict[str, Any] = request.parse_grants()._asdict()

        def create(keys: ApiKeyAdmin, now: int) -> KeyWithToken:
            made = keys.create(
                request.name,
                **allowed,
                lasts_ms=length(request.lasts_seconds),
                rate=request.rate,
                burst=request.burst,
                quota=request.quota,
            )
            return key_with_token(made, now)

        return await self._with_keys(create, actor)

    async def rotate_key(self, name: str, request: RotateRequest, actor: str = "") -> KeyWithToken:
        """Give a key another secret; raises ApiKeyNotFound, or IllegalTransition for a revoked one."""
        grace = length(request.grace_seconds) or 0
        return await self._with_keys(
            lambda keys, now: key_with_token(keys.rotate(name, grace_ms=grace), now), actor
        )

    async def revoke_key(self, name: str, actor: str = "") -> KeyView:
        """Let a key open nothing any more; raises as `rotate_key` does."""
        return await self._with_keys(lambda keys, now: key_view(keys.revoke(name), now), actor)

    async def audit(self, request: AuditRequest) -> AuditResponse:
        """Lines of the audit log that fit, newest first."""
        query = request.query()
        page = await self._pool.read(
            lambda reader: audit_page(reader, query, limit=request.limit, after=request.after)
        )
        return audit_response(page)

    async def check_audit(self, request: AuditCheckRequest) -> AuditCheckResponse:
        """Whether each line of the audit log follows the one before it, from a position on."""
        found = await self._pool.read(
            lambda reader: check_audit(reader, after=request.after, limit=request.limit)
        )
        return audit_check_response(found)

    async def _with_keys(self, call: Callable[[ApiKeyAdmin, int], T], actor: str) -> T:
        def use(client: Client) -> T:
            return client.write(
                lambda store: client.read(
                    lambda reader: call(ApiKeyAdmin(store, reader, actor=actor), reader.now())
                )
            )

        return await self._pool.use(use)
