"""How deeply JSON is nested, found out alike on every Python.

Where Python itself gives up depends on its version and on who calls: 3.11 reads some 950 levels, 3.12 some
1,450. What one program stores another has to read, so a number of ours decides, well below both.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

MAX_DEPTH: Final = 100

# Nothing of a text is given back once it was read, and so nothing has to be remembered of it.
_TEXTS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(each for each in range(256) if each not in b"[]{}")
_STEPS: Final = tuple({ord("["): 1, ord("]"): -1}.get(each, 0) for each in range(256))
# After so many rounds little is left of most, and the rest is counted one by one.
_ROUNDS: Final = 8


def is_deeper(text: bytes, max_depth: int = MAX_DEPTH) -> bool:
    """Whether lists and objects stand in each other more than `max_depth` deep; for JSON that is well
    formed."""
    if len(text) <= 2 * max_depth or text.count(b"[") + text.count(b"{") <= max_depth:
        return False
    brackets = _TEXTS.sub(b"", text).translate(_ONE_KIND, _OTHERS)
    rounds = min(max_depth, _ROUNDS)
    for _ in range(rounds):
        brackets = brackets.replace(b"[]", b"")  # the innermost go, all at once
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > max_depth - rounds
