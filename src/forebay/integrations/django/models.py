"""Unmanaged model: gives jobs a name in Django's admin and permissions. It has no table: jobs are read from
the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:  # Django has no types, and a base of an unknown type would make ours unknown

    class _Manager:
        """The part of Django's class that is used here."""

        def get_queryset(self) -> Any: ...

    class _Model:
        """The part of Django's class that is used here."""
else:
    _Manager, _Model = models.Manager, models.Model


class EmptyManager(_Manager):
    """Manager without objects, for commands that read all models, such as `dumpdata`."""

    def get_queryset(self) -> Any:
        return super().get_queryset().none()


class Job(_Model):
    """Model for permissions: `forebay.view_job` to look, `forebay.change_job` to cancel and revive."""

    id: Any = models.CharField(primary_key=True, max_length=200)

    objects: EmptyManager = EmptyManager()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions: tuple[str, ...] = ("view", "change")
        verbose_name = "job"
        verbose_name_plural = "jobs"
