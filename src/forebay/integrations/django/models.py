"""The name under which Django's admin and its permissions know jobs. There is no table behind it: jobs are in
the store, and are asked for there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:  # Django brings no types, and a base of an unknown type would make ours unknown

    class _Manager:
        """What we use of Django's."""

        def get_queryset(self) -> Any: ...

    class _Model:
        """What we use of Django's."""
else:
    _Manager, _Model = models.Manager, models.Model


class EmptyManager(_Manager):
    """For whoever goes through all models, such as `dumpdata`: nothing is here."""

    def get_queryset(self) -> Any:
        return super().get_queryset().none()


class Job(_Model):
    """Gives permissions: `forebay.view_job` to look, `forebay.change_job` to cancel and revive."""

    id: Any = models.CharField(primary_key=True, max_length=200)

    objects: EmptyManager = EmptyManager()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions: tuple[str, ...] = ("view", "change")
        verbose_name = "job"
        verbose_name_plural = "jobs"
