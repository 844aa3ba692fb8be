"""The store seam for Python programs elsewhere: any call of it, under the roles of whoever makes it.

What each call needs stands in `service.operations.reaching`, and a call that is not there is nobody's.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from forebay.errors import ConfigError
from forebay.service.auth import Caller
from forebay.service.operations.desk import Desk
from forebay.service.operations.reach import Reach
from forebay.service.operations.reaching import NEEDS
from forebay.service.operations.waiting import Waiting
from forebay.stores.wire import Call, calls, encoded

HINT: Final = "hint"


class Storing:
    """Calls of the seam as they come over a network."""

    def __init__(self, desk: Desk, waiting: Waiting) -> None:
        self._desk = desk
        self._waiting = waiting

    async def answer(self, operation: str, body: bytes, caller: Caller) -> bytes:
        """Make a call; raises what it raises, and Forbidden."""
        call = calls().get(operation)
        if call is None:
            raise ConfigError(f"this service knows no {operation!r:.60}; it may be of an older release")
        asked = call.read(body)
        if operation == HINT:
            return encoded(await self._waiting.hint(asked.seen))
        return await self._made(call, asked, caller)

    async def _made(self, call: Call, asked: object, caller: Caller) -> bytes:
        narrow = await NEEDS[call.name](Reach(self._desk, caller), asked)
        if call.writes:
            answer = await self._desk.write(partial(call.do, asked=asked))
        else:
            answer = await self._desk.read(partial(call.do, asked=asked))
        return encoded(answer if narrow is None else await narrow(answer))
