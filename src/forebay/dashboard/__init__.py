"""The web page of the service: files that are built from `dashboard/` and served beside the API."""
