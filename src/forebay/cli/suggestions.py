"""What somebody may have meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MAX_MATCHES: Final = 3
_MAX_LISTED: Final = 20  # more than that nobody reads


def close_matches(name: str, known: Iterable[str]) -> list[str]:
    """Names that are near to this one, the nearest first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only when something was mistyped

    names = sorted(set(known))
    # Most people leave out the module of a task, so the last part alone counts too.
    last = [one for one in names if one.rpartition(".")[2] == name]
    folded = {one.casefold(): one for one in names}
    near = get_close_matches(name.casefold(), folded, n=_MAX_MATCHES, cutoff=0.65)
    return last or [folded[one] for one in near]


def suggest(name: str, known: Iterable[str], *, otherwise: str | None = None) -> str:
    """The end of a sentence about a name that is not known: what may have been meant, or else where to look,
    or else all that there are."""
    names = sorted(set(known))
    near = close_matches(name, names)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if otherwise is not None:
        return f"; {otherwise}"
    more = ", ..." if len(names) > _MAX_LISTED else ""
    return f"; there are {', '.join(names[:_MAX_LISTED]) or 'none'}{more}"
