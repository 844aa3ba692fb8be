"""JSON values: their type, and their nesting depth, with the same bound on every Python.

Python's own bound depends on its version and on the caller: 3.11 reads some 950 levels, 3.12 some 1,450.
Every program has to read what another one stored, so a bound of our own decides, well below both.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    Json = Any  # msgspec has no recursive types, and decodes any JSON

MAX_DEPTH: Final = 100

# Possessive quantifiers: a text is never backtracked into, so no positions have to be stored.
_TEXTS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(each for each in range(256) if each not in b"[]{}")
_STEPS: Final = tuple({ord("["): 1, ord("]"): -1}.get(each, 0) for each in range(256))
# After so many rounds little is left of most texts, and the rest is counted one by one.
_ROUNDS: Final = 8


def is_deeper(text: bytes, max_depth: int = MAX_DEPTH) -> bool:
    """Return whether lists and objects are nested more than `max_depth` deep; for well-formed JSON."""
    if len(text) <= 2 * max_depth or text.count(b"[") + text.count(b"{") <= max_depth:
        return False
    brackets = _TEXTS.sub(b"", text).translate(_ONE_KIND, _OTHERS)
    rounds = min(max_depth, _ROUNDS)
    for _ in range(rounds):
        brackets = brackets.replace(b"[]", b"")  # removes all innermost pairs at once
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > max_depth - rounds
