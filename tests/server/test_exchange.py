import asyncio
import logging
from typing import Any

import pytest

from flm.server.exchange import until_disconnect

pytestmark = pytest.mark.anyio


async def gone() -> dict[str, Any]:
    return {"type": "http.disconnect"}


async def staying() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def test_a_client_that_leaves_ends_its_work_and_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with caplog.at_level(logging.INFO, logger="flm"):
        await until_disconnect(gone, work(), "chatcmpl-1")
    assert ended == [True]
    assert [record.getMessage() for record in caplog.records] == [
        "chatcmpl-1: the client has gone; its request is cancelled"
    ]


async def test_work_that_ends_by_itself_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise ValueError("its own")

    with caplog.at_level(logging.INFO, logger="flm"), pytest.raises(ValueError, match="its own"):
        await until_disconnect(staying, work(), "chatcmpl-1")
    assert caplog.records == []
