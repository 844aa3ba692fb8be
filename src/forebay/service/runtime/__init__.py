"""Shared state of one service process: store pool, batching, waiting claims, event feed, statistics."""

from __future__ import annotations
