"""Running the server: the socket, the signals, the banner, and an orderly end."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from flm import log
from flm.cli.ports import listen
from flm.config import ServeConfig
from flm.errors import FlmError, ShuttingDownError
from flm.log import logger
from flm.server.app import create_app
from flm.server.wire import EnvelopeProtocol
from flm.service import Service
from flm.version import __version__
from flm.wiring import build_service

# After the grace period the streams still have to send their last event.
_LAST_WORDS_S = 2.0


def run_server(config: ServeConfig) -> int:
    """Serve until a signal; the exit status.

    Raises:
        FlmError: the port is taken, or the model cannot be used.
    """
    log.configure(logging.getLevelNamesMapping()[config.log_level.upper()])
    listener = listen(config.host, config.port)
    try:
        service = build_service(config)
        host = _Host(config, service, listener)
        return asyncio.run(host.run())
    finally:
        listener.close()


class _Host:
    """One server and the one service behind it."""

    def __init__(self, config: ServeConfig, service: Service, listener: socket.socket) -> None:
        self._config = config
        self._service = service
        self._listener = listener
        self._failure: Exception | None = None
        app = create_app(
            service,
            adaptations=config.adaptations,
            cors=config.cors,
            keepalive_s=config.keepalive_s,
            require_model=config.require_model,
            response_store=config.response_store,
            lifespan=self._lifespan,
        )
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                http=EnvelopeProtocol,
            ),
            on_signal=self._begin_close,
            on_second_signal=service.end_grace,
        )
        self._closing: asyncio.Task[None] | None = None
        self._last_words: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Serve until a signal, or until the model turns out not to load."""
        await self._server.serve(sockets=[self._listener])
        if self._failure is not None:
            raise self._failure
        return 0

    @asynccontextmanager
    async def _lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        # The server listens while the model loads, so /health can say so.
        loading = asyncio.create_task(self._load())
        try:
            yield
        finally:
            self._begin_close()
            if self._closing is not None:
                await self._closing
            if self._last_words is not None:
                self._last_words.cancel()
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

    async def _load(self) -> None:
        try:
            await self._service.load()
        except ShuttingDownError:
            return
        except FlmError as error:
            self._failure = error
            self._server.should_exit = True
        else:
            self._show_banner()

    def _begin_close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(
                self._service.close(grace_s=self._config.grace_s), name="close"
            )
            self._last_words = asyncio.create_task(self._end_after(self._closing))

    async def _end_after(self, closing: asyncio.Task[None]) -> None:
        """Once every request has its answer, do not wait for clients that never take it."""
        await asyncio.wait({closing})
        await asyncio.sleep(_LAST_WORDS_S)
        self._server.force_exit = True

    def _show_banner(self) -> None:
        model = self._service.current
        if model is None:
            return
        info = model.info
        port = self._listener.getsockname()[1]
        logger.info(
            "flm %s serves %s (%s, %s on %s, %s mode, context %d tokens, KV cache in %s)",
            __version__,
            info.id,
            info.quantization,
            info.dtype,
            info.device,
            "exact" if info.exact else "fast",
            info.context_len,
            info.kv_dtype,
        )
        logger.info("OpenAI base URL: http://%s:%d/v1", _shown_host(self._config.host), port)
        logger.info("Press Ctrl+C to stop.")


class _Server(uvicorn.Server):
    """uvicorn, telling us about the signals that end it."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_signal: Callable[[], None],
        on_second_signal: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._steps = iter(
            (
                (on_signal, "Stopping: running requests may finish; press Ctrl+C to end them now."),
                (on_second_signal, "Ending the running requests."),
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin the orderly end; a second signal cuts its grace period, a third one everything.

        uvicorn's own handler would raise the signal again after the end; an orderly end is no
        failure, so its exit status is 0.
        """
        step = next(self._steps, None)
        if step is None:
            self.force_exit = True
            return
        self.should_exit = True
        act, message = step
        logger.info("%s", message)
        asyncio.get_running_loop().call_soon_threadsafe(act)


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
