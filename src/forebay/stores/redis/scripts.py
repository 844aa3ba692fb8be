"""Scripts, each with the parts that it shares with others in front of it."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final, NamedTuple

from forebay.stores.statements import load_statements

PACKAGE: Final = "forebay.stores.redis"
_CLOCK: Final = "1_clock"


class Script(NamedTuple):
    text: str
    digest: str


@cache
def load_scripts(clock: str | None = None) -> dict[str, Script]:
    """Every script by its name; `clock` takes the place of the server's."""
    shared = dict(load_statements(PACKAGE, "lua/shared", ".lua"))
    if clock is not None:
        shared[_CLOCK] = clock
    parts = "\n".join(shared[name] for name in sorted(shared))
    return {
        name: _script(text, parts) for name, text in sorted(load_statements(PACKAGE, "lua", ".lua").items())
    }


def _script(text: str, parts: str) -> Script:
    # The first line tells the server what the script may do, and has to stay the first.
    flags, _, rest = text.partition("\n")
    whole = f"{flags}\n{parts}\n{rest}"
    return Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())
