"""What can go wrong in a benchmark."""


class BenchError(Exception):
    """A measurement that cannot be made; the message says why and what to do."""
