"""Queues under the names their users know, each a thin dress over `Forebay`."""

from __future__ import annotations
