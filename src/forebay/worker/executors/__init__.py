"""What runs a call: threads for blocking tasks, one event loop for coroutine tasks."""

from __future__ import annotations
