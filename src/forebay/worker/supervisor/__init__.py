"""Several worker processes, kept alive by one that runs no jobs and does not load the app."""

from __future__ import annotations
