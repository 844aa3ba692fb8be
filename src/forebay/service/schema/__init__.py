"""Structs of requests and responses, version 1. Instants are ISO texts in UTC, durations end in
`_seconds`."""
