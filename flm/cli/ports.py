"""Is the port free? Asked before a model is loaded, because loading can take minutes."""

import errno
import os
import socket

import psutil

from flm.errors import ConfigError


def require_free_port(host: str, port: int) -> None:
    """Bind ``host:port`` once and let go of it.

    Raises:
        ConfigError: see ``listen``.
    """
    listen(host, port).close()


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to ``host:port``, for a server to listen on.

    Raises:
        ConfigError: it cannot be bound; the message says why, who may hold it, and the remedy.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"--host (or FLM_HOST) is {host!r}, which is not an address of this machine. "
            "Use 127.0.0.1, or 0.0.0.0 to be reached from others."
        ) from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    # A port that only waits for old connections to fade is free; elsewhere the option would let
    # two servers share a port.
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _explain(error, host, port) from error
    return listener


def _explain(error: OSError, host: str, port: int) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"Port {port} on {host} is in use{_holder(port)}. Stop that program, or choose "
            "another port with --port (or FLM_SERVE_PORT)."
        )
    if error.errno == errno.EACCES:
        return ConfigError(
            f"Port {port} on {host} is reserved for the administrator. Choose one from 1024 up "
            "with --port (or FLM_SERVE_PORT)."
        )
    return ConfigError(
        f"{host}:{port} cannot be listened on ({error.strerror}). Choose another --host or --port."
    )


def _holder(port: int) -> str:
    """Who listens there, as far as the system tells us."""
    try:
        connections = psutil.net_connections(kind="tcp")
        owner = next(
            item.pid
            for item in connections
            if item.status == psutil.CONN_LISTEN and item.laddr and item.laddr.port == port
        )
        return f" by {psutil.Process(owner).name()} (process {owner})"
    except (psutil.Error, OSError, StopIteration):
        return ", perhaps by another flm serve"
