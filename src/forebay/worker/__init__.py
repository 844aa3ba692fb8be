"""Worker: coordinator, executors, lease renewal and supervisor."""

from __future__ import annotations
