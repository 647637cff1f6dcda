"""The app: every route, and the files of the page. A program can mount it, or `dugnad web` serves it.

All routes stand in one table, and every request passes the guard. Files are read once, into a fixed table: there is no
way from an address to the file system.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from .. import __version__
from ..view.json import Shape
from . import looking, steering
from .calls import Look, Served, handler, json_answer
from .following import FollowedBoard
from .guard import BODY_SECONDS_MAX, Admitted, Guard, Site, WebRefusal
from .sessions import Sessions, WebSession

_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml", ".png": "image/png", ".webmanifest": "application/manifest+json",
}  # fmt: skip
_LOOKS: Mapping[str, Look] = {
    "state": looking.state, "stream": looking.stream, "timeline": looking.timeline, "money": looking.money,
    "merges": looking.merges, "notes": looking.notes, "messages": looking.messages, "events": looking.events,
    "changes": looking.changes, "tasks/{task}": looking.task, "tasks/{task}/turns": looking.turns,
    "tasks/{task}/turns/{epoch}/{number}": looking.turn, "tasks/{task}/diff": looking.diff,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page, as it is sent."""

    content: bytes
    packed: bytes  # By gzip.
    kind: str
    etag: str

    def answer(self, request: Request) -> Response:
        lines = {"etag": self.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if self.etag in (request.headers.get("if-none-match") or "").replace(" ", "").split(","):
            return Response(status_code=304, headers=lines)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, media_type=self.kind, headers={**lines, "content-encoding": "gzip"})
        return Response(self.content, media_type=self.kind, headers=lines)


def static_files() -> dict[str, StaticFile]:
    """All files of the page, by their path below `static`."""
    return dict(_files_in(files("dugnad.web").joinpath("static"), ""))


def _files_in(folder: Traversable, above: str) -> Iterable[tuple[str, StaticFile]]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        kind = _TYPES.get(f".{each.name.rpartition('.')[2]}")
        if each.is_dir():
            yield from _files_in(each, f"{above}{each.name}/")
        elif kind is not None:
            content = each.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield f"{above}{each.name}", StaticFile(content, gzip.compress(content, mtime=0), kind, etag)


def board_app(
    boards: Sequence[FollowedBoard], sessions: Sessions, site: Site, *, environment: Mapping[str, str] | None = None,
    body_seconds: float = BODY_SECONDS_MAX, mounts: Mapping[str, ASGIApp] | None = None,
) -> Starlette:  # fmt: skip
    """The app for these boards. It follows nothing by itself: `followed` in `following.py` does. `mounts`: other apps
    below it, by path, which the guard lets through to once Host and Origin are right."""
    served = Served(
        boards={each.id: each for each in boards}, sessions=sessions, site=site,
        environment=os.environ if environment is None else environment,
    )  # fmt: skip
    ids = {each.id: each.identity for each in boards}
    guard = Middleware(
        Guard, site=site, sessions=sessions, boards=ids, body_seconds=body_seconds, mounts=mounts or {}
    )  # fmt: skip
    app = Starlette(routes=[*_routes()], middleware=[guard], exception_handlers={HTTPException: _refused})
    app.router.redirect_slashes = False
    app.state.served = served
    app.state.files = static_files()
    return app


def _routes() -> Iterable[BaseRoute]:
    yield Route("/", _page, methods=["GET"])
    yield Route("/static/{file:path}", _static, methods=["GET"])
    yield Route("/api/session", _session, methods=["GET"])
    yield Route("/api/session", _begin, methods=["POST"])
    yield Route("/api/session/end", _end, methods=["POST"])
    for name, look in _LOOKS.items():
        yield Route(f"/api/boards/{{board}}/{name}", handler(look), methods=["GET"])
    for name, steer in steering.WRITES.items():
        yield Route(f"/api/boards/{{board}}/{name}", handler(steer), methods=["POST"])


async def _refused(request: Request, error: Exception) -> Response:
    """What the router itself refuses, in our words."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        raise WebRefusal(405, "BadMethod", "This address is not asked in this way.")
    raise WebRefusal(404, "NotFound", "There is nothing at this address.")


async def _page(request: Request) -> Response:
    return _file(request, "index.html")


async def _static(request: Request) -> Response:
    return _file(request, request.path_params["file"])


def _file(request: Request, name: str) -> Response:
    found: Mapping[str, StaticFile] = request.app.state.files
    if name not in found:
        raise WebRefusal(404, "NotFound", "There is nothing at this address.")
    return found[name].answer(request)


# Sessions.


async def _begin(request: Request) -> Response:
    """Exchange a key for a session."""
    served: Served = request.app.state.served
    key = request.scope["dugnad"].given.get("key")
    found = served.sessions.exchange(key) if isinstance(key, str) else None
    if found is None:
        raise WebRefusal(
            401,
            "BadKey",
            "This link was used already, or is not of this server; Enter in the terminal prints a new one.",
        )
    answer = json_answer(_shape(served, found[1]))
    answer.headers["set-cookie"] = served.site.set_cookie(found[0])
    return answer


async def _session(request: Request) -> Response:
    asked: Admitted = request.scope["dugnad"]
    assert asked.session is not None
    return json_answer(_shape(request.app.state.served, asked.session))


async def _end(request: Request) -> Response:
    served: Served = request.app.state.served
    asked: Admitted = request.scope["dugnad"]
    assert asked.session is not None
    served.sessions.end(asked.session)
    answer = json_answer({"says": "The session has ended."})
    answer.headers["set-cookie"] = served.site.set_cookie("")
    return answer


def _shape(served: Served, session: WebSession) -> Shape:
    boards = [each for each in served.boards.values() if each.identity in session.boards]
    return {
        "scope": session.scope, "who": session.who, "expires_at": session.expires_at, "version": __version__,
        "boards": [{"id": each.id, "name": each.name, "where": each.where} for each in boards],
    }  # fmt: skip
