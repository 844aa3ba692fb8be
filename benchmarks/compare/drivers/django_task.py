"""The task of `django_tasks`, in a module of its own: jobs name it by that."""

from __future__ import annotations

from typing import Any

from benchmarks.compare.notes import note

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@task()
def noop(argument: dict[str, Any]) -> None:
    note(argument["t"])
