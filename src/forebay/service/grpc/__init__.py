"""The service over gRPC: each method parses, calls one operation and renders."""
