"""HTTP transport: each handler decodes a request, calls one permission function and encodes the response."""
