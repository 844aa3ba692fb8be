"""Dashboard: a web page that is built from `dashboard/` and served together with the API."""
