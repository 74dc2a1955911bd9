"""HTTP: requests are validated here and events become JSON or SSE."""
