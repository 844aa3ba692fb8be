"""Task service facade: tasks that workers claim, renew and acknowledge."""

from __future__ import annotations

from forebay.compat.task_service.service import EnqueueResult, TaskService
from forebay.compat.task_service.task import ServiceTask, TaskStatus

__all__ = ["EnqueueResult", "ServiceTask", "TaskService", "TaskStatus"]
