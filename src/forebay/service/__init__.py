"""Service: operations on a store for programs in other languages, operators and the dashboard."""
