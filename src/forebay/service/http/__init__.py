"""The service over HTTP: each handler parses, calls one operation and renders."""
