"""Suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MAX_MATCHES: Final = 3
_MAX_LISTED: Final = 20  # a longer list is of no use


def close_matches(name: str, known: Iterable[str]) -> list[str]:
    """Return similar names, the most similar first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only when something was mistyped

    names = sorted(set(known))
    # The module of a task is often left out, so a match of the last part alone counts too.
    last = [known_name for known_name in names if known_name.rpartition(".")[2] == name]
    folded = {known_name.casefold(): known_name for known_name in names}
    near = get_close_matches(name.casefold(), folded, n=_MAX_MATCHES, cutoff=0.65)
    return last or [folded[match] for match in near]


def suggest(name: str, known: Iterable[str], *, otherwise: str | None = None) -> str:
    """Return the end of a message about an unknown name: similar names, else `otherwise`, else all names."""
    names = sorted(set(known))
    near = close_matches(name, names)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if otherwise is not None:
        return f"; {otherwise}"
    more = ", ..." if len(names) > _MAX_LISTED else ""
    return f"; there are {', '.join(names[:_MAX_LISTED]) or 'none'}{more}"
