"""Memory for keys and values; knows no model and no request."""
