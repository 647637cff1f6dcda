"""What the handlers of requests share: the boards that are served, and one request as they see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ..view.json import Shape
from .following import FollowedBoard
from .guard import Admitted, Site, WebRefusal
from .history import BoardView
from .sessions import Sessions, WebSession
from .stream import Streams

_NUMBER_CHARS_MAX = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Everything that one server has."""

    boards: Mapping[str, FollowedBoard]  # By id.
    sessions: Sessions
    site: Site
    environment: Mapping[str, str]
    streams: Streams = field(default_factory=Streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardCall:
    """One request about one board, whose session may ask for it."""

    served: Served
    followed: FollowedBoard
    session: WebSession
    query: Mapping[str, str]
    path: Mapping[str, str]
    given: Mapping[str, Any]  # The body of a write.
    last_event_id: str | None = None

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = 10**15) -> int | None:
        """A whole number in the address, or the default."""
        text = self.path.get(name) or self.query.get(name) or ""
        return default if not text else number_in(name, text, least=least, most=most)

    def task(self) -> int:
        """The task in the path. If there is none with this number, the handler says so."""
        return number_in("task", self.path["task"], least=1, most=10**15)

    def view(self) -> BoardView:
        """The board as it is now, or with `at` as it was after that event."""
        at, followed = self.number("at"), self.followed
        first, last = followed.history.first, followed.history.last
        if at is None or first <= at <= last:
            return followed.view(at)
        if at > last and followed.reading is not None:
            raise WebRefusal(503, "Reading", "The log is still being read; try again in a moment.")
        if at > last:
            raise WebRefusal(404, "UnknownEvent", f"The log has no event {at} yet; the last one is {last}.")
        raise WebRefusal(404, "UnknownEvent", f"The events up to {first} were pruned; go back to {first} at most.")


def number_in(name: str, text: str, *, least: int, most: int) -> int:
    right = text.isascii() and text.isdecimal() and len(text) <= _NUMBER_CHARS_MAX
    if not right or not least <= int(text) <= most:
        raise WebRefusal(400, "BadInput", f"{name} must be a whole number from {least} to {most}.")
    return int(text)


Look = Callable[[BoardCall], Awaitable[Shape | Response]]


def handler(look: Look) -> Callable[[Request], Awaitable[Response]]:
    """A function of a call as an endpoint. It checks once more what the guard did: the session and its board."""

    async def handle(request: Request) -> Response:
        served: Served = request.app.state.served
        asked: Admitted = request.scope["dugnad"]
        followed = served.boards.get(request.path_params["board"])
        if asked.session is None or followed is None or followed.identity not in asked.session.boards:
            raise WebRefusal(404, "UnknownBoard", "There is no such board here.")
        call = BoardCall(
            served=served, followed=followed, session=asked.session, query=request.query_params,
            path=request.path_params, given=asked.given, last_event_id=request.headers.get("last-event-id"),
        )  # fmt: skip
        answer = await look(call)
        return answer if isinstance(answer, Response) else json_answer(answer)

    return handle


def json_answer(shape: Shape) -> Response:
    return Response(orjson.dumps(shape), media_type="application/json")
