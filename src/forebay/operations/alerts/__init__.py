"""Alerts: metric snapshot, evaluation of rules, stored records, notification."""

from __future__ import annotations
