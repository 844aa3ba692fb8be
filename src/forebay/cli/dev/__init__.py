"""`forebay dev`: worker, service and dashboard in one terminal."""

from __future__ import annotations
