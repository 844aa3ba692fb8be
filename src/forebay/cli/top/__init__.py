"""`forebay top`: live view of queues and workers in the terminal."""

from __future__ import annotations
