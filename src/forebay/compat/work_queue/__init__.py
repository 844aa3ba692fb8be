"""Work queue facade: a table of tasks."""

from __future__ import annotations

from forebay.compat.work_queue.queue import WorkQueue
from forebay.compat.work_queue.task import WorkTask

__all__ = ["WorkQueue", "WorkTask"]
