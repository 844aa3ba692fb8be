"""The objects of a program: app, tasks, client, handles, consumer, schedules, alerts."""

from __future__ import annotations
