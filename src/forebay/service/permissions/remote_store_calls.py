"""Store contract for Python programs elsewhere: any of its calls, under the permissions of the caller.

The rules are in `permissions.remote_store_call_rules`; a call without a rule is forbidden.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from forebay.errors import ConfigError
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.remote_store_access import StoreAccess
from forebay.service.permissions.remote_store_call_bounds import check_bounds
from forebay.service.permissions.remote_store_call_rules import STORE_CALL_RULES, check_operation
from forebay.service.runtime.payload_bytes_per_response import read_jobs, read_payloads
from forebay.service.service import Service
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.rpc import encode, store_methods

WAKEUP_OPERATION: Final = "poll_wakeups"


def check_call(permit: AuthorizedRequest, operation: str) -> None:
    """Raise ConfigError for an unknown call and Forbidden for one that the caller may not make at all, before
    its body is read."""
    if operation not in store_methods():
        raise ConfigError(f"this service knows no {operation!r:.60}; it may be of an older release")
    check_operation(permit.caller, operation)


async def call_store(permit: AuthorizedRequest, operation: str, body: bytes) -> bytes:
    """Make a call that `check_call` has allowed; raises its errors, and Forbidden."""
    method = store_methods()[operation]
    call_args = method.decode_arguments(body)
    if operation == WAKEUP_OPERATION:
        return encode(await permit.service.wakeup_polls.wait(call_args.version))
    is_bounded = any(claim.max_payload is not None for claim in getattr(call_args, "claims", ()))
    check_bounds(operation, call_args)
    narrow = await STORE_CALL_RULES[operation](StoreAccess(permit.service, permit.caller), call_args)
    pool = permit.service.pool
    call: Callable[[Any], Any] = partial(method.execute, request=call_args)
    if operation == "jobs" and call_args.with_payload:
        call = partial(read_jobs, ids=call_args.ids)
    result = await (pool.write(call) if method.writes else pool.read(call))
    if isinstance(result, SettleAndClaimResult) and not is_bounded:
        result = await _load_payloads(permit.service, result)  # a bounded caller reads large payloads itself
    return encode(result if narrow is None else await narrow(result))


async def _load_payloads(service: Service, result: SettleAndClaimResult) -> SettleAndClaimResult:
    """Return the result with the payloads that were left out; jobs beyond the byte budget are handed back."""
    if all(job.payload for job in result.jobs):
        return result
    try:
        ready, rest = await service.pool.read_fast(partial(read_payloads, jobs=result.jobs))
    except Exception:  # the claim is committed, so its jobs must be handed back
        await service.claim_waiters.give_back(result.jobs)
        raise
    await service.claim_waiters.give_back(rest)
    return replace(result, jobs=tuple(ready))
