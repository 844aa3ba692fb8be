"""Forebay: a background job queue for Python.

The names in `__all__` are the promised ones. Importing this package loads no database driver.
"""

from __future__ import annotations

from forebay.app.app import Forebay
from forebay.app.chain_and_group import chain, group
from forebay.app.current_job import current_job
from forebay.app.job_handle import JobHandle
from forebay.domain.retry_policy import RetryPolicy
from forebay.errors import (
    Cancel,
    ConfigError,
    Discard,
    DuplicateJob,
    ForebayError,
    InvalidJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LeaseLost,
    PayloadError,
    PermanentError,
    QueueClosed,
    QueueFull,
    RateLimited,
    Retry,
    RetryableError,
    Snooze,
    StoreError,
    StoreUnavailable,
    WaitTimeout,
)

__all__ = [
    "Cancel",
    "ConfigError",
    "Discard",
    "DuplicateJob",
    "Forebay",
    "ForebayError",
    "InvalidJob",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "LeaseLost",
    "PayloadError",
    "PermanentError",
    "QueueClosed",
    "QueueFull",
    "RateLimited",
    "Retry",
    "RetryPolicy",
    "RetryableError",
    "Snooze",
    "StoreError",
    "StoreUnavailable",
    "WaitTimeout",
    "__version__",
    "chain",
    "current_job",
    "group",
]

__version__ = "0.1.0.dev0"
