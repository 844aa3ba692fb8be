"""For the command line: `forebay worker forebay.integrations.django.worker:app`.

Reads the settings that DJANGO_SETTINGS_MODULE names, and FOREBAY_DJANGO_BACKEND, the alias in TASKS.
"""

from __future__ import annotations

import os

import django

from forebay.integrations.django.backend import django_app

django.setup()
app = django_app(os.environ.get("FOREBAY_DJANGO_BACKEND", "default"))
