"""Remote engine: the store contract over HTTP."""
