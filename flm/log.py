"""The server's log: one logger, lines that begin with ``[FLM]  `` on stderr."""

import logging
import sys

logger = logging.getLogger("flm")


class _LineFormatter(logging.Formatter):
    """``[FLM]  message``; warnings and errors name their level."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record (with its traceback, if any)."""
        text = super().format(record)
        if record.levelno > logging.INFO:
            return f"[FLM]  {record.levelname.capitalize()}: {text}"
        return f"[FLM]  {text}"


def configure(level: int = logging.INFO) -> None:
    """Send the project's log to stderr. Calling it again replaces the handler."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter("%(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
