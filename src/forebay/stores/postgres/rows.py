"""Rows to jobs, by the columns of this engine."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.domain.job import Job
from forebay.stores.shared.rows import STATES, Row, build_job, json_text, options_from_text


def job_from_row(row: Row) -> Job:
    """Return a job from the columns of `job`; live rows lack the last three."""
    head = (*row[:4], STATES[row[4]], *row[5:7])
    return build_job(head, options_from_text(row[7]), row[8:21], row[21:25], row[25], row[26:])


def options_text_with(text: str | None, metadata: dict[str, Any]) -> str:
    """Replace the metadata in stored options; fields that a newer program has added stay."""
    try:
        options = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        options = {}
    return json_text({**options, "metadata": metadata})


def options_text_unstarted(text: str | None, unstarted: int) -> str | None:
    """Replace the count of unstarted attempts in stored options. A damaged text stays: readers show it."""
    try:
        options = msgspec.json.decode("{}" if text is None else text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return text
    return json_text({**options, "unstarted": unstarted})
