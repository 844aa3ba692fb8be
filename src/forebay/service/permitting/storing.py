"""The store seam for Python programs elsewhere: any call of it, under the roles of whoever makes it.

What each call needs stands in `service.permitting.reaching`, and a call that is not there is nobody's.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from forebay.errors import ConfigError
from forebay.service.permitting.bounds import bounded
from forebay.service.permitting.permit import Permit
from forebay.service.permitting.reach import Reach
from forebay.service.permitting.reaching import NEEDS, check_at_all
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
    bounded(operation, asked)
    narrow = await NEEDS[operation](Reach(permit.service, permit.caller), asked)
    desk = permit.service.desk
    make = partial(call.do, asked=asked)
    answer = await (desk.write(make) if call.writes else desk.read(make))
    return encoded(answer if narrow is None else await narrow(answer))
