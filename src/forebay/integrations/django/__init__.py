"""Forebay as a backend of Django's tasks.

    INSTALLED_APPS = [..., "forebay.integrations.django"]
    TASKS = {"default": {
        "BACKEND": "forebay.integrations.django.backend.ForebayBackend",
        "OPTIONS": {"url": "postgresql://..."},
    }}

`python manage.py forebay worker` runs the jobs. Works with `django.tasks` (Django 6) and with the package
`django-tasks` (Django 5.2).
"""
