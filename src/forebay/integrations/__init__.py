"""Integrations with other libraries, one module or package each. A program imports only those of libraries
that it uses."""
