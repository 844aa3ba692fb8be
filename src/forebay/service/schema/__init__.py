"""The shapes of requests and answers, version 1. Instants are ISO texts in UTC, lengths end in `_seconds`."""
