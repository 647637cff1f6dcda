"""The connections to a provider: one request, and its streamed answer folded into one body.

HTTP goes through aiohttp, whose pool costs the same with any number of open connections (httpx walks all of them for
every request). Knows no protocol: the caller brings the bytes and the fold.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson

from ..errors import AnswerLost, ModelMisconfigured, ModelUnavailable
from .streaming import EndedEarly, Fold, Json, events, heard


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """What a provider answered. The names of the headers are in lower case."""

    status: int
    body: Json
    headers: Mapping[str, str]


@cache
def certificates() -> ssl.SSLContext:
    """What servers are checked with. All connections share it: to read it takes longer than to open a model."""
    import httpcore2  # Knows where each kind of machine keeps them.

    return httpcore2.default_ssl_context()


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
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=15)  # The caller bounds the whole call.
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, headers={"user-agent": "dugnad"}
            )
        return self._session

    def _proxy_for(self, url: str) -> str | None:
        """The proxy for this server, from the environment. Looked up once: aiohttp would use a thread each time."""
        if url not in self._proxies:
            host = urlsplit(url)
            bypassed = proxy_bypass(host.hostname or "")
            self._proxies[url] = None if bypassed else getproxies().get(host.scheme)
        return self._proxies[url]

    async def post(
        self, url: str, headers: Mapping[str, str], body: list[bytes], fold: Fold,
        hears: Callable[[str], None] | None = None,
    ) -> WireAnswer:  # fmt: skip
        """The answer; a stream is folded into one body. Raises if there is no answer."""
        sized = {**headers, "content-length": str(sum(map(len, body)))}
        try:
            # Redirects are not followed: they would send the key to another server.
            async with self._open().post(
                url, data=_whole(body), headers=sized, proxy=self._proxy_for(url), allow_redirects=False,
                ssl=certificates() if url.startswith("https:") else True,
            ) as answer:  # fmt: skip
                told = {key.lower(): value for key, value in answer.headers.items()}
                if answer.status >= 300 or "text/event-stream" not in told.get("content-type", ""):
                    return WireAnswer(answer.status, _json(answer.status, await answer.read()), told)
                stream = events(answer.content.iter_any())
                status, whole = await fold(stream if hears is None else heard(stream, hears))
                return WireAnswer(status, whole, told)
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise ModelMisconfigured(f"{url!r} is not the address of a server; write http://host:port/v1.") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ModelUnavailable(f"{url} cannot be reached: {error}.") from error
        except (aiohttp.ClientError, ConnectionError, EndedEarly, asyncio.IncompleteReadError) as error:
            raise AnswerLost(f"{url} broke off its answer: {str(error) or type(error).__name__}.") from error
        except orjson.JSONDecodeError as error:
            raise AnswerLost(f"{url} answered something that is not JSON: {error}.") from error


async def _whole(pieces: list[bytes]) -> AsyncIterator[bytes]:
    """The body, put together when it is sent. Nobody has to hold it while the provider thinks: others' pieces are the
    same, and a long conversation would take its room twice."""
    yield b"".join(pieces)


def _json(status: int, data: bytes) -> Json:
    """The body of an answer. The body of a failure may also be no JSON, since it may say why."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        if status < 300:
            raise
        found = None
    return found if isinstance(found, dict) else {"text": data[:2_000].decode(errors="replace")}
