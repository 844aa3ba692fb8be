"""A request that is not of the shape that its operation takes."""

from __future__ import annotations

import re
from typing import Final

_LOCATION: Final = re.compile(r"(?P<what>.*) - at `\$\.?(?P<field>.*)`\Z", re.DOTALL)


class InvalidRequest(Exception):
    """What is wrong with a request, and which part of it, as msgspec has it."""

    def __init__(self, message: str) -> None:
        found = _LOCATION.match(message)
        super().__init__(found["what"] if found else message)
        self.field: str | None = found["field"] or None if found else None
