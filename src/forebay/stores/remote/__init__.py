"""The engine on a service: the same seam over HTTP."""
