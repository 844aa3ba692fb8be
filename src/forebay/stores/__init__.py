"""Storage of jobs: the store contract and the engines that implement it."""

from __future__ import annotations
