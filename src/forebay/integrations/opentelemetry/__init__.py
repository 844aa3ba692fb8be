"""Traces and metrics of jobs with OpenTelemetry."""

from __future__ import annotations

from forebay.integrations.opentelemetry.metrics import measure
from forebay.integrations.opentelemetry.tracing import trace

__all__ = ["measure", "trace"]
