"""Which failures are the same one: a short name for an error, made of what stays when it happens again.

That is its class, its words without what differs from job to job (numbers, ids, quoted texts, paths), and the
functions of the task's own code that it came from, without line numbers, so that a release that moves a line
does not make another one of it. Nothing of this is stored: whoever reads an error can work it out.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from forebay.domain.dependencies import redact_parent

MAX_NORMALIZED: Final = 200
FRAMES: Final = 3
_HALF: Final = 8  # digits for the words, and as many for the place
_REMEMBERED: Final = 256  # jobs of a group stand beside each other, and it takes a tenth of a millisecond
FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}\Z")

# In this order: what is quoted may be anything, an address has numbers in it, and an id may look like one.
_PARTICULARS: Final = (
    (re.compile(r"(?<!\w)(['\"`])(?:(?!\1).)*\1(?!\w)", re.DOTALL), "<text>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s,;)>\]]+", re.IGNORECASE), "<url>"),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "<email>"),
    (re.compile(r"(?<![\w./\\<])(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@+%~-]+)+[/\\]?"), "<path>"),
    # Ids and numbers alike: one of ten ids of hexadecimal digits might have no letter in it.
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "#"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "#"),
    (re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b", re.IGNORECASE), "#"),
    (re.compile(r"\b(?=[^\W\d]*\d)\w{20,}\b"), "#"),
    (re.compile(r"\d+(?:[.,:_]\d+)*(?:e[+-]?\d+)?"), "#"),
    (re.compile(r"#(?:[.,:]#)+"), "#"),
    (re.compile(r"(?<!\w)[+-]#"), "#"),
    (re.compile(r"\s+"), " "),
    # How many there are differs too.
    (re.compile(r"(<\w+>|#)(?:[ ,;]+\1)+"), r"\1, ..."),
)

_TRACEBACK: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'^[ |+-]*File "([^"\n]+)", line \d+, in (.+)$', re.MULTILINE)
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_PYTHON: Final = re.compile(r"[/\\]lib[/\\]python3|[/\\]Lib[/\\](?!site-packages)|^<frozen ")
_FOREBAY: Final = re.compile(r"[/\\]forebay[/\\](?:app|domain|stores|worker)[/\\]")


@lru_cache(_REMEMBERED)
def normalize_reason(reason: str) -> str:
    """A reason without what differs from job to job. That is also the job it depended on, whose id may look
    like anything, and which not everybody may know."""
    text = redact_parent(reason)
    for pattern, instead in _PARTICULARS:
        text = pattern.sub(instead, text)
    return text.strip()[:MAX_NORMALIZED]


@lru_cache(_REMEMBERED)
def frames_of(traceback: str) -> tuple[str, ...]:
    """The innermost functions of the task's own code that an error came through, as `file:function`, the
    innermost last. Of an error that has caused another one the other counts."""
    # Where no line says so, all of it.
    last = traceback[traceback.rfind(_TRACEBACK) + 1 :]
    found = _FRAME.findall(last)
    # An app that was installed like a library is its own code all the same, if there is no other.
    ours = (
        [frame for frame in found if not _is_python_or_forebay(frame[0]) and not _INSTALLED.search(frame[0])]
        or [frame for frame in found if not _is_python_or_forebay(frame[0])]
        or found
    )
    places = [f"{_file(path)}:{function.strip()}" for path, function in ours]
    # A function that has called itself is named once, however deep it went.
    distinct = [place for place, before in zip(places, [None, *places], strict=False) if place != before]
    return tuple(distinct[-FRAMES:])


def _is_python_or_forebay(path: str) -> bool:
    return bool((_PYTHON.search(path) and not _INSTALLED.search(path)) or _FOREBAY.search(path))


def _file(path: str) -> str:
    """Without its directories: the next release may be installed elsewhere."""
    return re.split(r"[/\\]", path)[-1]


def fingerprint(reason: str | None, traceback: str = "") -> str:
    """The short name of a failure: 16 digits, of which the first half stands for the words alone."""
    return fingerprint_prefix(reason) + _digits("\n".join(frames_of(traceback)))


def fingerprint_prefix(reason: str | None) -> str:
    """The first half of the fingerprint. It can be had from a line of a list, so whoever looks for jobs of a
    group has to look closer only at those that can be of it."""
    return _digits(normalize_reason(reason or ""))


def may_belong_to(group: str, reason: str | None) -> bool:
    """Whether a job that ended for this reason can be of a group."""
    return group.startswith(fingerprint_prefix(reason))


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_HALF]
