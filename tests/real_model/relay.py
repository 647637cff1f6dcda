"""A relay in front of a model's server that insists on tool calls.

The model is too small to choose a tool by itself. So every request that offers tools gets `tool_choice: required`, and
a nudge towards the token that a call begins with. Everything else passes as it is, streams piece by piece.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import orjson
from aiohttp import web

OPENING = 39428  # The token `{"` of this model.


def insisting(body: bytes) -> bytes:
    asked = orjson.loads(body)
    if asked.get("tools"):
        asked |= {"tool_choice": "required", "logit_bias": [[OPENING, 6.0]]}
    return orjson.dumps(asked)


@asynccontextmanager
async def relay(url: str) -> AsyncIterator[str]:
    """The address of a relay to the server at `url`."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            data = insisting(await request.read())
            headers = {"content-type": "application/json"}
            async with session.post(f"{url}/chat/completions", data=data, headers=headers) as answer:
                response = web.StreamResponse(status=answer.status)
                response.content_type = answer.content_type
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                return response

        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", pass_on)
        runner = web.AppRunner(app, handler_cancellation=True)  # Whoever gave up is not waited for.
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, shutdown_timeout=1)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/v1"
        await runner.cleanup()
