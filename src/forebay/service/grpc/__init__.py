"""gRPC transport: each method decodes a request, calls one permission function and encodes the response."""
