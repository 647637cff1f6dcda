"""What the guard lets through, and what it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from dugnad.board import Board, open_board
from dugnad.web.guard import site_of
from tests.conftest import Opener
from tests.web.asking import HOST, ORIGIN, OWN, PORT, ask, desk
from tests.web.credential_walk import OPEN, Walk, walk_boards


@pytest.fixture
async def other(folder: Path) -> Board:
    return await open_board(f"sqlite:///{folder}/other.db")


async def test_no_route_is_open_to_anything_that_is_not_a_right_credential(board: Board, other: Board) -> None:
    await board.put("goal")
    routes, found = await walk_boards(board, other)
    await other.close()
    assert found == []
    assert routes > 25


async def test_a_right_credential_reaches_every_route(board: Board) -> None:
    """Otherwise the walk would prove nothing."""
    await board.put("goal")
    async with desk(board) as made:
        walker = Walk(made)
        for method, route, path in await walker.each("GET"):
            id = made.session("look")
            answer = await ask(made.app, method, path, [made.cookie(id)])
            assert answer.status in (200, 404), (route, answer.body)
            assert answer.status == 200 or answer.kind == "NotFound", (route, answer.body)
        for method, route, path in await walker.each("POST"):
            for credential in ([made.cookie(made.session())], [("authorization", f"Bearer {made.session()}")]):
                answer = await ask(made.app, method, path, [*credential, *OWN], [b"{}"])
                right = (401,) if (method, route) in OPEN else (200, 400)
                assert answer.status in right, (route, answer.body)


async def test_a_route_that_somebody_adds_is_closed_by_itself(board: Board) -> None:
    async def forgotten(request: Request) -> Response:
        return Response("secret")

    async with desk(board) as made:
        for path in ("/api/new", "/new", "/staticx", "/api/boards/x/new", "/api/sessions"):
            made.app.router.routes.append(Route(path, forgotten, methods=["GET", "POST"]))
            assert (await ask(made.app, "GET", path)).status == 401
            assert (await ask(made.app, "POST", path, OWN, [b"{}"])).status == 401
            look = made.cookie(made.session("look"))
            assert (await ask(made.app, "POST", path, [look, *OWN], [b"{}"])).status in (403, 404)


async def test_a_bearer_token_needs_no_origin_but_may_not_have_a_strange_one(board: Board) -> None:
    async with desk(board) as made:
        bearer = ("authorization", f"Bearer {made.session()}")
        path, body = f"/api/boards/{made.boards[0].id}/note", [json.dumps({"title": "a", "text": "b"}).encode()]
        assert (await ask(made.app, "POST", path, [bearer, *OWN[1:]], body)).status == 200
        strange = ("origin", "https://evil.example")
        assert (await ask(made.app, "POST", path, [bearer, strange, *OWN[1:]], body)).kind == "BadOrigin"
        assert (await ask(made.app, "POST", path, [bearer, OWN[0], OWN[2]], body)).kind == "NoHeader"


async def test_of_several_cookies_the_one_that_steers_counts(board: Board) -> None:
    """Another server on this machine can set a cookie of our name, and a browser then sends both."""
    async with desk(board) as made:
        look, steer = made.session("look"), made.session("steer")
        for ids in ((look, steer), (steer, look), ("wrong", steer), (steer, "wrong")):
            both = ("cookie", "; ".join(f"{made.site.cookie}={id}" for id in ids))
            answer = await ask(made.app, "GET", "/api/session", [both])
            assert answer.json["scope"] == "steer"


async def test_the_page_and_its_files_need_no_session_and_hold_no_data(board: Board) -> None:
    async with desk(board) as made:
        page = await ask(made.app, "GET", "/")
        assert page.status == 200
        assert page.header("content-type") == "text/html; charset=utf-8"
        assert made.boards[0].id.encode() not in page.body
        for name in made.app.state.files:
            assert (await ask(made.app, "GET", f"/static/{name}")).status == 200
        for name in ("nothing.js", "", "vendor", "vendor/", "../app.py", "app.py", "__init__.py", "vendor/HASHES"):
            assert (await ask(made.app, "GET", f"/static/{name}")).status in (401, 404), name


async def test_a_link_from_another_site_may_lead_to_the_page_only(board: Board) -> None:
    async with desk(board) as made:
        elsewhere = ("sec-fetch-site", "cross-site")
        assert (await ask(made.app, "GET", "/", [elsewhere])).status == 200
        own = made.cookie(made.session())
        assert (await ask(made.app, "GET", "/api/session", [own, elsewhere])).status == 403
        for site in ("same-origin", "none"):
            assert (await ask(made.app, "GET", "/api/session", [own, ("sec-fetch-site", site)])).status == 200


async def test_behind_tls_the_named_origin_counts_and_no_other(board: Board) -> None:
    site = site_of(PORT, "https://dugnad.example.org")
    assert site.cookie == f"__Host-dugnad-{PORT}"
    async with desk(board, site=site) as made:
        key = made.sessions.new_key("steer", boards=[made.boards[0].identity], who="eve")
        body = [json.dumps({"key": key}).encode()]

        async def begin(origin: str, host: str) -> int:
            headers = [("origin", origin), *OWN[1:]]
            return (await ask(made.app, "POST", "/api/session", headers, body, host=host)).status

        assert await begin(ORIGIN, HOST) == 403
        assert await begin("http://dugnad.example.org", "dugnad.example.org") == 403
        assert await begin("https://dugnad.example.org", "evil.example") == 421
        headers = [("origin", "https://dugnad.example.org"), *OWN[1:]]
        answer = await ask(made.app, "POST", "/api/session", headers, body, host="dugnad.example.org")
        assert answer.status == 200
        cookie = answer.header("set-cookie") or ""
        assert cookie.startswith(f"__Host-dugnad-{PORT}=")
        assert cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure")


async def test_the_app_can_be_mounted_below_a_path(board: Board) -> None:
    async with desk(board) as made:
        outer = Starlette(routes=[Mount("/boards here", app=made.app)])
        own = made.cookie(made.session())
        assert (await ask(outer, "GET", "/boards%20here/")).status == 200
        assert (await ask(outer, "GET", "/boards%20here/api/session")).status == 401
        assert (await ask(outer, "GET", "/boards%20here/api/session", [own])).status == 200
        assert (await ask(outer, "GET", "/boards%20here/api%2Fsession", [own])).status == 404


async def test_a_bug_of_a_handler_is_a_sentence_without_a_traceback(board: Board) -> None:
    async def broken(request: Request) -> Response:
        raise ZeroDivisionError("the secret of the handler")

    async with desk(board) as made:
        made.app.router.routes.append(Route("/api/broken", broken, methods=["GET"]))
        answer = await ask(made.app, "GET", "/api/broken", [made.cookie(made.session())])
        assert (answer.status, answer.kind) == (500, "Bug")
        assert b"secret" not in answer.body
        assert answer.header("content-security-policy") is not None


async def test_what_is_refused_is_said_in_one_sentence(board: Board) -> None:
    async with desk(board) as made:
        answer = await ask(made.app, "GET", "/api/session")
        assert answer.json == {
            "error": {"kind": "NoSession", "message": "There is no session; open the link that `dugnad web` printed."}
        }
        assert answer.header("cache-control") == "no-store"
        assert answer.header("content-type") == "application/json"


async def test_a_session_of_boards_that_are_not_here_counts_as_none(opener: Opener, other: Board) -> None:
    """It outlives the server, and the next one at this port may serve something else."""
    async with desk(await opener()) as made, desk(other) as elsewhere:
        found = made.sessions.exchange(made.sessions.new_key("steer", boards=[elsewhere.boards[0].identity]))
        assert found is not None
        assert (await ask(made.app, "GET", "/api/session", [made.cookie(found[0])])).status == 401
    await other.close()
