"""Texts that mean something to a database, a script, a pattern, a terminal or a path, and nothing to us."""

from __future__ import annotations

from typing import Final

from forebay.domain.job_validation import check_text
from forebay.errors import InvalidJob

NASTY: Final = (
    "'",
    '"',
    "`",
    "\\",
    "\\'",
    "';--",
    "'); DROP TABLE forebay_jobs; --",
    '"; drop schema forebay cascade; --',
    "' OR '1'='1",
    "1' union select 1--",
    "$$; select pg_sleep(60); $$",
    "$1",
    "%s",
    "%(queue)s",
    ":queue",
    "?1",
    "{}",
    "{0.__class__}",
    "${jndi:ldap://x}",
    "]] .. redis.call('FLUSHALL') .. [[",
    "{hash}",
    "a}b{c",
    "*",
    "?",
    "[a-z]",
    "%",
    "_",
    "%%",
    "\\%",
    "a:b:c",
    "a b",
    " ",
    " a",
    "a ",
    "ready:default",
    "task:t",
    "default pending",
    "null",
    "0",
    "-1",
    "1e5",
    "true",
    "[]",
    "~",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "&amp;",
    "a,b",
    "a|b",
    "é",
    "e\u0301",
    "\u202eabc",
    "\u200b",
    "\ufeff",
    "\U0001f600",
    "\U0010ffff",
    "\u2028",
    "İ",
    "ß",
    "A",
    "a",
    # What no store could hold, or no terminal should show.
    "\x00",
    "a\x00b",
    "a\nb",
    "a\r\nb",
    "\x1b[31m",
    "\x7f",
    "\ud800",
    "",
    "x" * 10_000,
)


def is_text(text: str, most: int) -> bool:
    """Whether this may be a name or a key of a job."""
    try:
        check_text("text", text, most)
    except InvalidJob:
        return False
    return True


HELD: Final = tuple(text for text in NASTY if is_text(text, 50))
REFUSED: Final = tuple(text for text in NASTY if text not in HELD)
