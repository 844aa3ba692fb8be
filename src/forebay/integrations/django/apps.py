"""The Django app, for its management command."""

from __future__ import annotations

from django.apps import AppConfig


class ForebayConfig(AppConfig):  # type: ignore[misc]
    """What goes into INSTALLED_APPS."""

    name = "forebay.integrations.django"
    label = "forebay"
    verbose_name = "Forebay"
