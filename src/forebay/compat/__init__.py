"""Facades over `Forebay` under names that users of other queues know."""

from __future__ import annotations
