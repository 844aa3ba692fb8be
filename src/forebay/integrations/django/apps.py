"""Django app config, for the management command and the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Django has no types, and a base of an unknown type would make ours unknown

    class AppConfig:
        """The part of Django's class that is used here."""

        def ready(self) -> None: ...
else:
    from django.apps import AppConfig


class ForebayConfig(AppConfig):
    """The app for INSTALLED_APPS."""

    name = "forebay.integrations.django"
    label = "forebay"
    verbose_name = "Forebay"

    def ready(self) -> None:
        """Connect the signals of databases. Imported here: models and settings are not there before."""
        from django.db.backends.signals import connection_created  # noqa: PLC0415
        from django.db.models.signals import post_migrate  # noqa: PLC0415

        from forebay.integrations.django.database_hooks import close_idle_connections, create_tables  # noqa: PLC0415

        post_migrate.connect(create_tables, sender=self)
        connection_created.connect(close_idle_connections)
