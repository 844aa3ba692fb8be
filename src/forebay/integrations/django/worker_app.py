"""App of the project for the command line: `forebay worker forebay.integrations.django.worker_app:app`.

Reads the settings that DJANGO_SETTINGS_MODULE names, and FOREBAY_DJANGO_BACKEND, the alias in TASKS.
"""

from __future__ import annotations

import os

import django

from forebay.app.app import Forebay
from forebay.integrations.django.backend import django_app

django.setup()
app: Forebay = django_app(os.environ.get("FOREBAY_DJANGO_BACKEND", "default"))
