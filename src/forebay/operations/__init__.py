"""Use cases that take a store and a reader: bulk actions, search, gradual revives, statistics."""

from __future__ import annotations
