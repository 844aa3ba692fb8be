"""Payloads: codec, typed JSON, masking, encryption, blobs, and the engine wrapper that applies them."""

from __future__ import annotations
