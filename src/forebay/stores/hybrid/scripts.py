"""The scripts that run in Redis, each with the parts that they share."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

from forebay.stores.redis.scripts import Script
from forebay.stores.statements import load_statements

PACKAGE: Final = "forebay.stores.hybrid"


@cache
def load_scripts() -> dict[str, Script]:
    """Every script by its name."""
    [shared] = load_statements(PACKAGE, "lua/shared", ".lua").values()
    return {name: _script(text, shared) for name, text in load_statements(PACKAGE, "lua", ".lua").items()}


def _script(text: str, shared: str) -> Script:
    # The first line tells the server what the script may do, and has to stay the first.
    first, _, rest = text.partition("\n")
    whole = f"{first}\n{shared}\n{rest}"
    return Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())
