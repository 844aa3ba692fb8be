"""Helpers for the tests of programs that use Forebay. pytest finds its fixtures in `pytest_forebay`."""

from __future__ import annotations

from forebay.testing.clock import ManualClock
from forebay.testing.faults import Fault, Killed, PlannedFaults
from forebay.testing.trial import Trial
from forebay.testing.urls import trial_url
from forebay.testing.worker import WorkerStep

__all__ = ["Fault", "Killed", "ManualClock", "PlannedFaults", "Trial", "WorkerStep", "trial_url"]
