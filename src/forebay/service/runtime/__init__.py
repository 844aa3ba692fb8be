"""Shared state of one service process: store pool, waiting claims, maintenance, event feed, statistics."""

from __future__ import annotations
