"""What a body may hold, a file an endpoint."""
