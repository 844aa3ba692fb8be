"""Django's tasks, from Django itself or from the package that provides them for Django 5.2."""

from __future__ import annotations

try:
    from django.tasks import base, exceptions, signals, task_backends
    from django.tasks.backends import base as backends
    from django.utils.json import normalize_json
except ImportError:
    from django_tasks import base, exceptions, signals, task_backends
    from django_tasks.backends import base as backends
    from django_tasks.utils import normalize_json

__all__ = ["backends", "base", "exceptions", "invalid_task", "normalize_json", "signals", "task_backends"]


def invalid_task(reason: str) -> Exception:
    """Return the error for a task that the backend refuses; the two packages name it differently."""
    kind = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
    error: Exception = kind(reason)
    return error
