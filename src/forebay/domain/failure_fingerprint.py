"""Fingerprints of failures: short names, made of the parts of an error that stay the same when it happens
again.

These are its class, its message and the functions of the task's own code that raised it. Numbers, ids, quoted
texts and paths, which differ from job to job, are left out of the message. Line numbers are left out, so that
a release that moves a line makes no new fingerprint. Fingerprints are computed when they are read, and never
stored.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from forebay.domain.dependencies import redact_parent

MAX_NORMALIZED: Final = 200
FRAMES: Final = 3
_HALF: Final = 8  # digits for the message, and as many for the frames
_REMEMBERED: Final = 256  # jobs of a group come together, and one fingerprint takes 0.1 ms
FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}\Z")

# In this order: a quoted text may be anything, an address has numbers in it, and an id may look like one.
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
    # The number of such parts differs, too.
    (re.compile(r"(<\w+>|#)(?:[ ,;]+\1)+"), r"\1, ..."),
)

_TRACEBACK: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'^[ |+-]*File "([^"\n]+)", line \d+, in (.+)$', re.MULTILINE)
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_PYTHON: Final = re.compile(r"[/\\]lib[/\\]python3|[/\\]Lib[/\\](?!site-packages)|^<frozen ")
_FOREBAY: Final = re.compile(r"[/\\]forebay[/\\](?:app|domain|stores|worker)[/\\]")


@lru_cache(_REMEMBERED)
def normalize_reason(reason: str) -> str:
    """Return a reason without what differs from job to job, including the id of a parent: it may look like
    anything, and not everyone who reads the group may see it."""
    text = redact_parent(reason)
    for pattern, replacement in _PARTICULARS:
        text = pattern.sub(replacement, text)
    return text.strip()[:MAX_NORMALIZED]


@lru_cache(_REMEMBERED)
def frames_of(traceback: str) -> tuple[str, ...]:
    """Return the innermost functions of the task's own code that an error came through, as
    `file:function`, the innermost last. For an error with a cause, the frames of the last traceback count."""
    # Without such a line, all of it.
    last = traceback[traceback.rfind(_TRACEBACK) + 1 :]
    frames = _FRAME.findall(last)
    # An app that was installed like a library is its own code all the same, if there is no other.
    own_frames = (
        [frame for frame in frames if not _is_python_or_forebay(frame[0]) and not _INSTALLED.search(frame[0])]
        or [frame for frame in frames if not _is_python_or_forebay(frame[0])]
        or frames
    )
    names = [f"{_file(path)}:{function.strip()}" for path, function in own_frames]
    # A recursive function is named once, however deep it went.
    distinct = [name for name, previous in zip(names, [None, *names], strict=False) if name != previous]
    return tuple(distinct[-FRAMES:])


def _is_python_or_forebay(path: str) -> bool:
    return bool((_PYTHON.search(path) and not _INSTALLED.search(path)) or _FOREBAY.search(path))


def _file(path: str) -> str:
    """Return the file name without directories: the next release may be installed elsewhere."""
    return re.split(r"[/\\]", path)[-1]


def fingerprint(reason: str | None, traceback: str = "") -> str:
    """Return the fingerprint of a failure: 16 digits, of which the first half stands for the message
    alone."""
    return fingerprint_prefix(reason) + _digits("\n".join(frames_of(traceback)))


def fingerprint_prefix(reason: str | None) -> str:
    """Return the first half of the fingerprint. A line of a job list is enough for it. So a search for a
    group reads only jobs that may belong to it."""
    return _digits(normalize_reason(reason or ""))


def may_belong_to(group: str, reason: str | None) -> bool:
    """Return whether a job that ended for this reason can be in a group."""
    return group.startswith(fingerprint_prefix(reason))


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_HALF]
