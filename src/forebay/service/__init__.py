"""The service: what programs in other languages, operators and the dashboard can ask of a store."""
