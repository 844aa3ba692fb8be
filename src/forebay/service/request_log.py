"""Log lines about requests: refused ones at a bounded rate, all of them with `--access-log`.

Lines name the key, never its secret. Query strings are left out: they may contain the text of a search.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import msgspec

from forebay.clock import Clock
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.errors import TooManyRequests
from forebay.service.api_keys import parse_token
from forebay.service.client_rates_and_quotas import ClientRateLimiter

# Per status, so that a client that is refused ten thousand times a second does not fill the disk.
LINES: Final = Limit(scope="global", rate=5, burst=50)
_ANSWERED: Final = (
    "%(method)s %(path).200r %(status)s in %(milliseconds)s ms: "
    "address %(address)s, caller %(caller)s, request %(request)s"
)
_REFUSED: Final = (
    "refused %(method)s %(path).200r with %(status)s: "
    "address %(address)s, key %(caller)s, request %(request)s"
)
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,50}\Z")

refusals: logging.Logger = logging.getLogger("forebay.service.refusals")
access: logging.Logger = logging.getLogger("forebay.service.access")


class RequestLine(msgspec.Struct, frozen=True, kw_only=True):
    """Logged request. For a refused token, `caller` is the name of the key in it."""

    method: str
    path: str
    status: str
    address: str
    caller: str = ""
    request: str = ""

    def write(self, milliseconds: float) -> None:
        """Write the line to the access log."""
        values = {**self.fields, "milliseconds": round(milliseconds, 1)}
        access.info(_ANSWERED, values, extra=values)

    @property
    def fields(self) -> dict[str, Any]:
        found: dict[str, str] = msgspec.to_builtins(self)
        return {name: value or "-" for name, value in found.items()}


class Refusals:
    """Log of refused requests, limited in lines per second."""

    def __init__(self, clock: Clock) -> None:
        self._rates = ClientRateLimiter(LINES, clock)
        self._unwritten = 0

    def write(self, line: RequestLine) -> None:
        if not self._may_write(line.status):
            return
        refusals.warning(_REFUSED, line.fields, extra=line.fields)

    def write_connection(self, address: str) -> None:
        """Log that a connection was refused because too many are open."""
        if self._may_write("connection"):
            refusals.warning("refused a connection from %s: too many are open", address)

    def _may_write(self, status: str) -> bool:
        try:
            self._rates.take(status)
        except TooManyRequests:
            self._unwritten += 1
            return False
        if self._unwritten:
            refusals.warning("%d more refusals were not written", self._unwritten)
            self._unwritten = 0
        return True


def key_name_in(token: str | None) -> str:
    """Return the name of the key in a token; empty if there is none."""
    name, _ = parse_token(token or "")
    return name if _NAME.match(name) else ""
