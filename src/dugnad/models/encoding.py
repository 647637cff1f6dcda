"""Encodes requests to a provider: the bytes of earlier messages are kept, and only new messages are encoded.

A conversation only grows at its end. The bytes of earlier turns are kept and put in front of the new messages here; the
library and the SDK only see the new ones. HTTP goes through aiohttp, whose pool costs the same with any number of open
connections (httpx walks all of them for every request). Answers are streamed and folded. A turn therefore costs the
same at its hundredth message as at its first, and with a thousand open calls as with one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import orjson

from ..errors import AnswerLost, ModelMisconfigured, ModelUnavailable
from .streaming import EndedEarly, Fold, Folded, Json, events, heard

_SYSTEM = ("system", "developer")
_LOOK_BACK_BLOCKS = 20  # From a breakpoint, Anthropic looks this far back for what an earlier request wrote.
_OF_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")  # Fields of a request that depend on its tools.


@dataclass(slots=True)
class Exchange:
    """One request on its way from the caller to the provider."""

    before: list[bytes] = field(default_factory=list)  # Earlier messages, as bytes.
    tools: dict[str, bytes] | None = None  # The tools, as bytes; then the request itself names none.
    hears: Callable[[str], None] | None = None  # Is told the text of the answer as it comes.
    sent: list[bytes] | None = None  # Filled in: the messages of this request, as bytes.
    sent_tools: dict[str, bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # Filled in: of the answer.
    begun: bool = False  # Filled in: the request may have reached the provider.


exchange: ContextVar[Exchange] = ContextVar("exchange")


@cache
def certificates() -> ssl.SSLContext:
    """What servers are checked with. All connections share it: to read it takes longer than to open a model."""
    return httpx2.create_ssl_context()


class ProviderWire:
    """The connections to one provider."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No limit on connections: budgets and rate limits bound the number of calls.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=certificates())
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=15)  # The caller bounds the whole call.
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self._session

    def _proxy_for(self, url: str) -> str | None:
        """The proxy for this server, from the environment. Looked up once: aiohttp would use a thread each time."""
        host = urlsplit(url)
        if host.netloc not in self._proxies:
            bypassed = proxy_bypass(host.hostname or "")
            self._proxies[host.netloc] = None if bypassed else getproxies().get(host.scheme)
        return self._proxies[host.netloc]

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, fold: Fold) -> Folded:
        """The status and the body of the answer; a stream is folded into one body. Raises if there is no answer."""
        now = exchange.get()
        now.begun = True
        try:
            # Redirects are not followed: they would send the key to another server.
            async with self._open().post(
                url, data=body, headers=headers, proxy=self._proxy_for(url), allow_redirects=False
            ) as answer:
                now.headers = {key.lower(): value for key, value in answer.headers.items()}
                if answer.status >= 300 or "text/event-stream" not in answer.headers.get("content-type", ""):
                    return answer.status, _json(answer.status, await answer.read())
                stream = events(answer.content.iter_any())
                return await fold(stream if now.hears is None else heard(stream, now.hears))  # type: ignore[no-any-return]
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise ModelMisconfigured(f"{url!r} is not the address of a server; write http://host:port/v1.") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ModelUnavailable(f"{url} cannot be reached: {error}.") from error
        except (aiohttp.ClientError, ConnectionError, EndedEarly, asyncio.IncompleteReadError) as error:
            raise AnswerLost(f"{url} broke off its answer: {str(error) or type(error).__name__}.") from error
        except orjson.JSONDecodeError as error:
            raise AnswerLost(f"{url} answered something that is not JSON: {error}.") from error


def _json(status: int, data: bytes) -> Json:
    """The body of an answer. The body of a failure may also be no JSON, since it may say why."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        if status < 300:
            raise
        found = None
    return found if isinstance(found, dict) else {"text": data[:2_000].decode(errors="replace")}


def encode(body: Json) -> bytes:
    """The body, with the earlier messages in front of the new ones, and all tools."""
    now = exchange.get()
    messages = "messages" if "messages" in body else "input"
    new = body[messages]
    lead = next((place for place, each in enumerate(new) if each.get("role") not in _SYSTEM), len(new))
    now.sent = [orjson.dumps(message) for message in new[lead:]]
    every = _with_breakpoint([*now.before, *now.sent], body.get("cache_control"))
    body[messages] = [*new[:lead], *map(orjson.Fragment, every)]
    if now.tools is not None:
        body.update({name: orjson.Fragment(value) for name, value in now.tools.items()})
    else:
        now.sent_tools = {name: orjson.dumps(body[name]) for name in _OF_TOOLS if name in body}
    return orjson.dumps(body)


def _with_breakpoint(messages: list[bytes], mark: Json | None) -> list[bytes]:
    """With a fourth breakpoint for Anthropic's cache. The library sets three: on the tools, on the system text, and on
    the last block, from where the end of the request before is found. If that is too far back, it is marked itself.
    Otherwise the first message is, which is still cached after everything behind it was compacted."""
    if mark is None or not messages:
        return messages
    blocks = sum(len(orjson.loads(each)["content"]) for each in messages[-2:])
    place, nth = (-3, -1) if blocks >= _LOOK_BACK_BLOCKS and len(messages) > 2 else (0, 0)
    message = orjson.loads(messages[place])
    block = message["content"][nth]
    if message["role"] != "user" or not isinstance(block, dict) or block.get("text") == "":
        return messages  # Such a block cannot be marked.
    block["cache_control"] = mark
    marked = messages[:]
    marked[place] = orjson.dumps(message)
    return marked
