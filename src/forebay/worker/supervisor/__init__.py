"""Supervisor of several worker processes. It runs no jobs and does not load the app."""

from __future__ import annotations
