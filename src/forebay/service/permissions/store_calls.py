"""The store seam for Python programs elsewhere: any call of it, under the roles of whoever makes it.

What each call needs stands in `service.permitting.reaching`, and a call that is not there is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from forebay.errors import ConfigError
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.permissions.store_access import StoreAccess
from forebay.service.permissions.store_call_bounds import check_bounds
from forebay.service.permissions.store_write_rules import STORE_CALL_RULES, check_operation
from forebay.service.runtime.claim_bytes import read_jobs, read_payloads
from forebay.service.service import Service
from forebay.stores.contract.values import SettleAndClaimResult
from forebay.stores.rpc import encode, store_methods

WAKEUP_OPERATION: Final = "poll_wakeups"


def check_call(permit: AuthorizedRequest, operation: str) -> None:
    """Raise ConfigError for a call that there is not, and Forbidden for one that is not theirs, whatever it
    is about: nobody's body is read for nothing."""
    if operation not in store_methods():
        raise ConfigError(f"this service knows no {operation!r:.60}; it may be of an older release")
    check_operation(permit.caller, operation)


async def call_store(permit: AuthorizedRequest, operation: str, body: bytes) -> bytes:
    """Make a call that was checked; raises what it raises, and Forbidden."""
    call = store_methods()[operation]
    asked = call.decode_arguments(body)
    if operation == WAKEUP_OPERATION:
        return encode(await permit.service.claim_waiters.wait_for_wakeup(asked.version))
    is_bounded = any(want.max_payload is not None for want in getattr(asked, "claims", ()))
    check_bounds(operation, asked)
    narrow = await STORE_CALL_RULES[operation](StoreAccess(permit.service, permit.caller), asked)
    desk = permit.service.pool
    make: Callable[[Any], Any] = partial(call.execute, request=asked)
    if operation == "jobs" and asked.with_payload:
        make = partial(read_jobs, ids=asked.ids)
    answer = await (desk.write(make) if call.writes else desk.read(make))
    if (
        isinstance(answer, SettleAndClaimResult) and not is_bounded
    ):  # else the caller reads large payloads apart
        answer = await _load_payloads(permit.service, answer)
    return encode(answer if narrow is None else await narrow(answer))


async def _load_payloads(service: Service, answer: SettleAndClaimResult) -> SettleAndClaimResult:
    """An exchange with the payloads that were left out; jobs with too many bytes for one answer go back."""
    if all(job.payload for job in answer.jobs):
        return answer
    try:
        ready, rest = await service.pool.read_fast(partial(read_payloads, jobs=answer.jobs))
    except Exception:  # the claim is made, and its jobs must go back
        await service.claim_waiters.give_back(answer.jobs)
        raise
    await service.claim_waiters.give_back(rest)
    return replace(answer, jobs=tuple(ready))
