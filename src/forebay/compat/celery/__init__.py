"""Celery's names on a Forebay store."""

from __future__ import annotations

from forebay.compat.celery.app import (
    AsyncResult,
    Celery,
    MaxRetriesExceededError,
    Task,
    TaskRequest,
    shared_task,
)

__all__ = ["AsyncResult", "Celery", "MaxRetriesExceededError", "Task", "TaskRequest", "shared_task"]
