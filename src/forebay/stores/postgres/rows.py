"""Rows to jobs, as the columns stand here; the rest is shared by the engines on SQL."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.domain.job import Job
from forebay.stores.shared.rows import STATES, Row, build_job, json_text, options_from_text


def job_from_row(row: Row) -> Job:
    """A job from the columns of `job`; live rows lack the last three."""
    head = (*row[:4], STATES[row[4]], *row[5:7])
    return build_job(head, options_from_text(row[7]), row[8:21], row[21:25], row[25], row[26:])


def options_text_with(text: str | None, metadata: dict[str, Any]) -> str:
    """Stored settings with other metadata; what else is there stays, it may come from a newer program."""
    try:
        options = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        options = {}
    return json_text({**options, "metadata": metadata})


def options_text_unstarted(text: str | None, unstarted: int) -> str | None:
    """Stored settings with another count of unstarted attempts. A damaged text stays: readers show it."""
    try:
        options = msgspec.json.decode("{}" if text is None else text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return text
    return json_text({**options, "unstarted": unstarted})
