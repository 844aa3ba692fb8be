"""The name under which Django's admin and its permissions know jobs. There is no table behind it: jobs are in
the store, and are asked for there."""

from __future__ import annotations

from typing import Any

from django.db import models


class NoRows(models.Manager):  # type: ignore[misc]
    """For whoever goes through all models, such as `dumpdata`: nothing is here."""

    def get_queryset(self) -> Any:
        return super().get_queryset().none()


class Job(models.Model):  # type: ignore[misc]
    """Gives permissions: `forebay.view_job` to look, `forebay.change_job` to cancel and revive."""

    id = models.CharField(primary_key=True, max_length=200)

    objects = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view", "change")
        verbose_name = "job"
        verbose_name_plural = "jobs"
