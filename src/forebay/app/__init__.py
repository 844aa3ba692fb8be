"""What a program holds in its hand."""

from __future__ import annotations
