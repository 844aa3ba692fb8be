"""Audit log: search, and the check of its hash chain."""

from __future__ import annotations

from forebay.operations.audit_check import check_audit
from forebay.operations.audit_search import audit_page
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.audit import (
    AuditCheckRequest,
    AuditCheckResponse,
    AuditRequest,
    AuditResponse,
    audit_check_response,
    audit_response,
)


class AuditResource:
    """Audit log of the store."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def audit(self, request: AuditRequest) -> AuditResponse:
        """Return matching entries, newest first."""
        query = request.query()
        page = await self._pool.read(
            lambda reader: audit_page(reader, query, limit=request.limit, after=request.after)
        )
        return audit_response(page)

    async def check_audit(self, request: AuditCheckRequest) -> AuditCheckResponse:
        """Check from a position on that each entry follows the one before it."""
        check = await self._pool.read(
            lambda reader: check_audit(reader, after=request.after, limit=request.limit)
        )
        return audit_check_response(check)
