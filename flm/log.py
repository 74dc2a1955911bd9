"""The server's log: one logger, lines that begin with ``[FLM]  `` on stderr."""

import asyncio
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
    handler.addFilter(_is_no_cancellation)
    # uvicorn's lines are the server's too.
    for own in (logger, logging.getLogger("uvicorn")):
        own.handlers[:] = [handler]
        own.propagate = False
    logger.setLevel(level)
    logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """False for the traceback of a task that was ended on purpose."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError)
