"""Helpers for the tests of programs that use Forebay. pytest finds its fixtures in `pytest_forebay`."""

from __future__ import annotations

from forebay.testing.fault_injection import Fault, Killed, PlannedFaults
from forebay.testing.manual_clock import ManualClock
from forebay.testing.store_urls import trial_url
from forebay.testing.trial import Trial
from forebay.testing.trial_worker import WorkerStep

__all__ = ["Fault", "Killed", "ManualClock", "PlannedFaults", "Trial", "WorkerStep", "trial_url"]
