"""Code that several engines use: rows, limits, fairness, dependencies, schedules, job import, statements."""

from __future__ import annotations
