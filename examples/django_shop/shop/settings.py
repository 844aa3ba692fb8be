"""Settings of the shop. Jobs are in its database, so that they commit with its transactions."""

from __future__ import annotations

import os
from pathlib import Path

SECRET_KEY = "only for this example"
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "forebay.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "shop.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", Path(__file__).parents[1] / "shop.db"),
        "TEST": {"NAME": os.environ.get("SHOP_TEST_DATABASE", Path(__file__).parents[1] / "test.db")},
    }
}
if "SHOP_POSTGRES_PORT" in os.environ:  # the same shop on a PostgreSQL server of this machine
    DATABASES["default"] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("SHOP_DATABASE", "shop"),
        "HOST": "127.0.0.1",
        "PORT": os.environ["SHOP_POSTGRES_PORT"],
        "USER": os.environ.get("SHOP_POSTGRES_USER", "postgres"),
        "TEST": {"NAME": os.environ.get("SHOP_TEST_DATABASE", "test_shop")},
    }
TASKS = {
    "default": {
        "BACKEND": "forebay.integrations.django.backend.ForebayBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"database": "default", "defaults": {"retries": 2}},
    }
}
