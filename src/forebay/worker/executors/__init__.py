"""Executors: threads for blocking tasks, one event loop for coroutines, processes for isolated tasks."""

from __future__ import annotations
