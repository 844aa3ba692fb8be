"""Celery facade: Celery's names on a Forebay store."""

from __future__ import annotations

from typing import Any

from forebay.compat.celery import app as _names
from forebay.compat.celery.app import (
    AsyncResult,
    Celery,
    MaxRetriesExceededError,
    Task,
    TaskRequest,
    shared_task,
)

__all__ = ["AsyncResult", "Celery", "MaxRetriesExceededError", "Task", "TaskRequest", "shared_task"]


def __getattr__(name: str) -> Any:
    """Refuse names of Celery's package that are not offered, and name the alternative."""
    return _names.__getattr__(name)
