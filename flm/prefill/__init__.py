"""Reading a prompt into the cache, chunk by chunk."""
