"""Telemetry of running jobs: log formats, metrics collector, observers, call durations."""

from __future__ import annotations
