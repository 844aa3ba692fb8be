"""The store seam for Python programs elsewhere: any call of it, under the roles of whoever makes it.

What each call needs stands in `service.permitting.reaching`, and a call that is not there is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from forebay.errors import ConfigError
from forebay.service.operations.claim_bytes import read_jobs, read_payloads
from forebay.service.operations.service import Service
from forebay.service.permitting.bounds import bounded
from forebay.service.permitting.permit import Permit
from forebay.service.permitting.reach import Reach
from forebay.service.permitting.reaching import NEEDS, check_at_all
from forebay.stores.protocol import Exchange
from forebay.stores.wire import calls, encoded

HINT: Final = "hint"


def check_call(permit: Permit, operation: str) -> None:
    """Raise ConfigError for a call that there is not, and Forbidden for one that is not theirs, whatever it
    is about: nobody's body is read for nothing."""
    if operation not in calls():
        raise ConfigError(f"this service knows no {operation!r:.60}; it may be of an older release")
    check_at_all(permit.caller, operation)


async def call_store(permit: Permit, operation: str, body: bytes) -> bytes:
    """Make a call that was checked; raises what it raises, and Forbidden."""
    call = calls()[operation]
    asked = call.read(body)
    if operation == HINT:
        return encoded(await permit.service.waiting.hint(asked.seen))
    is_bounded = any(want.max_payload is not None for want in getattr(asked, "wants", ()))
    bounded(operation, asked)
    narrow = await NEEDS[operation](Reach(permit.service, permit.caller), asked)
    desk = permit.service.desk
    make: Callable[[Any], Any] = partial(call.do, asked=asked)
    if operation == "jobs" and asked.with_payload:
        make = partial(read_jobs, ids=asked.ids)
    answer = await (desk.write(make) if call.writes else desk.read(make))
    if isinstance(answer, Exchange) and not is_bounded:  # else the caller reads large payloads apart
        answer = await _with_payloads(permit.service, answer)
    return encoded(answer if narrow is None else await narrow(answer))


async def _with_payloads(service: Service, answer: Exchange) -> Exchange:
    """An exchange with the payloads that were left out; jobs with too many bytes for one answer go back."""
    if all(job.payload for job in answer.jobs):
        return answer
    try:
        ready, rest = await service.desk.holding(partial(read_payloads, jobs=answer.jobs))
    except Exception:  # the claim is made, and its jobs must go back
        await service.waiting.give_back(answer.jobs)
        raise
    await service.waiting.give_back(rest)
    return replace(answer, jobs=tuple(ready))
