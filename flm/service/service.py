"""The service: one loaded model behind a slot, prompts prepared in a pool, requests admitted."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from flm.errors import (
    EngineDeadError,
    FlmError,
    InternalError,
    LoadingError,
    require_token_ids,
)
from flm.log import logger
from flm.service.explain import CachePlan, cache_plans
from flm.service.generation import Generation
from flm.service.models import (
    LoadedModel,
    ModelInfo,
    ModelLibrary,
    Place,
    Prepared,
    TokenText,
)
from flm.service.normalize import normalised
from flm.service.prepare import prepare, renders_alike, with_settings
from flm.service.requests import check_count, engine_requests
from flm.service.slot import ExchangeFailedError, ModelSlot
from flm.text.normalize import Normalizer
from flm.types import GenerationRequest
from flm.version import __version__

T = TypeVar("T")
NOTHING_REMOVED = Normalizer()


class Service:
    """Everything a dialect needs to answer a request. Used from one event loop.

    ``served_names`` are further names of the loaded model; ``*`` stands for any name. What
    ``normalizer`` matches is taken out of system messages.
    """

    version = __version__

    def __init__(
        self,
        library: ModelLibrary,
        default_model: str,
        *,
        served_names: Sequence[str] = (),
        max_waiting: int = 64,
        normalizer: Normalizer = NOTHING_REMOVED,
        num_text_threads: int = 2,
    ) -> None:
        self._library = library
        self._default_model = default_model
        self._served_names = tuple(served_names)
        self._slot: ModelSlot[LoadedModel] = ModelSlot(self._exchange, max_waiting=max_waiting)
        self._pool = ThreadPoolExecutor(num_text_threads, thread_name_prefix="flm-text")
        self._normalizer = normalizer
        self._load_error: Exception | None = None
        self._grace: asyncio.Task[bool] | None = None
        self._is_closing = asyncio.Event()
        self._active: dict[str, Generation] = {}

    # --- models --------------------------------------------------------------------------------

    @property
    def current(self) -> LoadedModel | None:
        """The loaded model; None while there is none."""
        return self._slot.current

    @property
    def served_names(self) -> tuple[str, ...]:
        """Further names of the loaded model."""
        return self._served_names

    async def models(self) -> list[ModelInfo]:
        """The installed models; the loaded one first, with what only a loaded model knows and
        under its further names too."""
        listed = await self._in_pool(self._library.installed)
        current = self._slot.current
        if current is None:
            return listed
        others = [info for info in listed if info.id != current.model_id]
        names = (name for name in self._served_names if name not in ("*", current.model_id))
        return [current.info, *(replace(current.info, id=name) for name in names), *others]

    def health(self) -> None:
        """Return when requests can be answered.

        Raises:
            LoadingError: a model is being loaded.
            EngineDeadError: the engine ended, or no model could be loaded.
        """
        if self._slot.is_loading:
            raise LoadingError("The model is being loaded; try again shortly.")
        current = self._slot.current
        if current is None and self._load_error is None:
            raise LoadingError("No model is loaded yet; try again shortly.")
        if current is None or not current.engine.stats().alive:
            raise EngineDeadError(
                "The engine has stopped; see the server's log and restart the server."
            )

    async def resolve(self, name: str | None) -> str:
        """The id of the model that a request names (None: the loaded one).

        Raises:
            ModelNotFoundError: no installed model and no served name matches.
            LoadingError, EngineDeadError: nothing is loaded.
        """
        current = self._slot.current
        if current is None:
            self.health()
            raise LoadingError("No model is loaded yet; try again shortly.")
        known = {current.model_id, *self._served_names}
        if name is None or name in known or "*" in self._served_names:
            return current.model_id
        # Ollama's clients write the tag that they leave out.
        bare = name.removesuffix(":latest")
        if bare in known:
            return current.model_id
        return await self._in_pool(lambda: self._library.resolve(bare))

    @asynccontextmanager
    async def model_lease(self, name: str | None) -> AsyncIterator[LoadedModel]:
        """Hold the model a request names (None: the loaded one) until the reply is finished.

        Raises:
            ModelNotFoundError: no installed model and no served name matches.
            LoadingError, QueueFullError, ShuttingDownError: not now.
        """
        model_id = await self.resolve(name)
        async with self._slot.lease(model_id) as model:
            yield model

    async def load(self) -> None:
        """Load the default model. Called once, when the server starts."""
        await self._slot.load(self._default_model)

    async def reload(self) -> None:
        """Load the current model afresh: settings back to its defaults, cache empty."""
        current = self._slot.current
        await self._slot.load(self._default_model if current is None else current.model_id)

    # --- requests ------------------------------------------------------------------------------

    async def prepare(self, model: LoadedModel, request: GenerationRequest) -> Prepared:
        """Prompt tokens of a request, or the reason why it cannot be answered (see prepare.py).

        Raises:
            InvalidRequestError: also for more choices than could ever run and wait together.
        """
        check_count(request, model.engine.stats())

        def work() -> Prepared:
            changed, records = normalised(self._normalizer, request)
            prepared = prepare(model, changed)
            return replace(prepared, adaptations=(*records, *prepared.adaptations))

        return await self._in_pool(work)

    async def start(self, model: LoadedModel, prepared: Prepared) -> Generation:
        """Admit a request: room in the queue, the sticky settings written and frozen, in one act.

        Raises:
            QueueFullError, EngineDeadError, ShuttingDownError: not admitted, nothing written.
        """
        prepared = await self._settled(model, prepared)
        request = prepared.request
        requests = engine_requests(model, prepared)
        ids = tuple(item.id for item in requests)
        generation = Generation(
            model,
            prepared,
            requests,
            model.store.peek(request.sent),
            aside=self._in_pool,
            on_end=lambda: self._forget(ids),
        )

        def admit() -> None:
            generation.admit(model.store.commit(request.sent, request.id))
            self._active.update(dict.fromkeys(ids, generation))

        model.engine.submit(requests, generation.sink, on_admit=admit)
        return generation

    def _forget(self, ids: Sequence[str]) -> None:
        for request_id in ids:
            self._active.pop(request_id, None)

    def places(self, model: LoadedModel) -> list[Place]:
        """The running places of a model: first those taken, in order of arrival, then the free."""
        stats = model.engine.stats()
        taken = [
            Place(self._active[name].prepared.request, self._active[name].num_decoded(name))
            for name in stats.running_ids
            if name in self._active
        ]
        return [*taken, *[Place()] * (stats.max_running - len(taken))]

    # --- text ----------------------------------------------------------------------------------

    async def tokenize(
        self, model: LoadedModel, text: str, *, bos: bool, control: bool
    ) -> list[TokenText]:
        """The tokens of a text; arguments as of ``Tokenizer.encode``."""

        def work() -> list[TokenText]:
            tokenizer = model.tokenizer
            ids = tokenizer.encode(text, control=control, bos=bos)
            return [TokenText(token_id, tokenizer.token_bytes(token_id)) for token_id in ids]

        return await self._in_pool(work)

    async def detokenize(self, model: LoadedModel, token_ids: Sequence[int], *, param: str) -> str:
        """The text of tokens, control tokens as their markers.

        Raises:
            InvalidRequestError: an id that is not in the vocabulary; ``param`` is the field's name.
        """

        def work() -> str:
            require_token_ids(token_ids, model.vocab_size, param=param)
            return model.tokenizer.decode(token_ids, skip_control=False)

        return await self._in_pool(work)

    async def cache_plans(self, model: LoadedModel, prepared: Prepared) -> tuple[CachePlan, ...]:
        """What the prefix cache would give each prompt now, and where the prompts leave it."""
        return await self._in_pool(lambda: cache_plans(model, prepared))

    async def _settled(self, model: LoadedModel, prepared: Prepared) -> Prepared:
        """``prepared`` under the settings in force now.

        No await lies between the last comparison and the submission, so what was rendered is what
        is frozen.
        """
        while True:
            request = prepared.request
            settings = model.store.peek(request.sent).settings
            alike = renders_alike(settings, request.settings)
            request = with_settings(request, settings)
            if alike:
                return replace(prepared, request=request)
            prepared = await self._in_pool(partial(prepare, model, request))

    # --- the end -------------------------------------------------------------------------------

    async def close(self, *, grace_s: float) -> None:
        """Refuse new requests, let the running ones finish for ``grace_s``, then end them."""
        self._is_closing.set()
        model = self._slot.close()
        self._grace = asyncio.create_task(self._slot.wait_idle(grace_s))
        await asyncio.wait({self._grace})
        if model is not None:
            await self._in_loader(model.engine.close)
        await self._in_loader(self._library.close)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def closing(self) -> None:
        """Return when the service begins to close."""
        await self._is_closing.wait()

    def end_grace(self) -> None:
        """Cut the grace period of a close that is under way: running requests end now."""
        if self._grace is not None:
            self._grace.cancel()

    # --- inside --------------------------------------------------------------------------------

    async def _exchange(self, old: LoadedModel | None, model_id: str) -> LoadedModel:
        try:
            await self._in_loader(lambda: self._library.check(model_id))
        except Exception as error:
            raise ExchangeFailedError(old, self._load_failure(error, old, model_id)) from error
        if old is not None:
            logger.info("Unloading %s", old.model_id)
            await self._in_loader(old.engine.close)
        try:
            return await self._in_loader(lambda: self._library.load(model_id))
        except Exception as error:
            failure = self._load_failure(error, old, model_id)
            left = None if old is None else await self._restore(old.model_id)
            raise ExchangeFailedError(left, failure) from error

    def _load_failure(self, error: Exception, old: LoadedModel | None, model_id: str) -> FlmError:
        """Log why a model cannot be loaded; what to tell who asked for it."""
        self._load_error = error
        if not isinstance(error, FlmError):
            logger.error("Loading %s failed", model_id, exc_info=error)
        elif old is None:
            # Nobody but who started the server waits for the first model; it gets the remedy.
            return error
        else:
            logger.error("Loading %s failed: %s", model_id, error)
            return InternalError(f"The model {model_id} could not be loaded: {error}")
        return InternalError(
            f"The model {model_id} could not be loaded ({error}); run `flm check {model_id}`."
        )

    async def _restore(self, model_id: str) -> LoadedModel | None:
        try:
            return await self._in_loader(lambda: self._library.load(model_id))
        except Exception:  # noqa: BLE001 - whatever it was, the server goes on without a model
            logger.exception("Loading %s again failed", model_id)
            return None

    async def _in_pool(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _in_loader(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread of its own: loading may take minutes, and neither text work nor
        the end of the program waits for it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        threading.Thread(target=_run_into, args=(work, loop, done), daemon=True).start()
        return await done


def _run_into(
    work: Callable[[], T], loop: asyncio.AbstractEventLoop, done: asyncio.Future[T]
) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - whoever awaits the future gets it
        _hand_over(loop, done, partial(done.set_exception, error))
    else:
        _hand_over(loop, done, partial(done.set_result, result))


def _hand_over(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], act: Callable[[], None]
) -> None:
    def settle() -> None:
        if not done.done():
            act()

    # The loop may have ended while the work went on; then nobody waits any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
