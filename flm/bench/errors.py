"""What can go wrong in a benchmark."""

from flm.errors import FlmError


class BenchError(FlmError):
    """A measurement that cannot be made; the message says why and what to do."""
