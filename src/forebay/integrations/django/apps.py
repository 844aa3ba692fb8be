"""The Django app, for its management command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Django brings no types, and a base of an unknown type would make ours unknown

    class AppConfig:
        """What we use of Django's."""
else:
    from django.apps import AppConfig


class ForebayConfig(AppConfig):
    """What goes into INSTALLED_APPS."""

    name = "forebay.integrations.django"
    label = "forebay"
    verbose_name = "Forebay"
