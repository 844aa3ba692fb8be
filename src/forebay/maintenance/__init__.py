"""Periodic maintenance tasks over the store contract, run by workers and by the standalone scheduler."""

from __future__ import annotations
