"""`dugnad web` in a pipe and on a terminal: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.shell import environment, run, run_anew, write_settings
from tests.cli.terminal import SECONDS, started, terminal
from tests.cli.test_commands_documented import promised

LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/#(steer|look)=([\w-]{43})")


@pytest.fixture
def project(folder: Path) -> Path:
    assert run("add", "goal", folder=folder).returncode == 0
    return folder


def port_of(program: subprocess.Popen[str]) -> dict[str, Any]:
    assert program.stdout is not None
    found: dict[str, Any] = json.loads(program.stdout.readline())
    return found


@contextmanager
def begun(link: str) -> Iterator[httpx2.Client]:
    """A browser that has opened a link."""
    client = begin(link)
    try:
        yield client
    finally:
        client.close()


def begin(link: str) -> httpx2.Client:
    found = LINK.fullmatch(link)
    assert found, link
    client = httpx2.Client(base_url=found[1], timeout=SECONDS, trust_env=False)
    headers = {"origin": found[1], "x-dugnad": "1"}
    answer = client.post("/api/session", json={"key": found[3]}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["scope"] == found[2]
    return client


def refusal(*words: str, folder: Path, code: int = 2, **more: str) -> str:
    ran = run("web", "--json", *words, folder=folder, **more)
    assert ran.returncode == code, (ran.stdout, ran.stderr)
    assert len(ran.stderr.splitlines()) == 1
    return ran.stderr


# What it prints.


def test_a_program_gets_the_links_as_one_object_and_the_server_goes_on(project: Path) -> None:
    with started("web", "--json", "--port", "0", folder=project) as program:
        told = port_of(program)
        assert set(told) == set(promised("web"))
        assert told["url"] == f"http://127.0.0.1:{told['port']}"
        assert [(each["name"], each["where"]) for each in told["boards"]] == [(project.name, ".dugnad/board.db")]
        with begun(told["steer"]) as client:
            boards = client.get("/api/session").json()["boards"]
            state = client.get(f"/api/boards/{boards[0]['id']}/state").json()
            assert [each["title"] for each in state["tasks"]] == ["goal"]
        with begun(told["look"]) as client:
            assert client.get("/api/session").json()["who"] is None
        program.send_signal(signal.SIGTERM)
        assert program.wait(SECONDS) == 0


def test_on_a_terminal_enter_gives_a_new_link_and_ctrl_c_ends_it(project: Path) -> None:
    with terminal("web", "--port", "0", folder=project, columns=200) as window:
        window.shows(f"Serving {project.name} (.dugnad/board.db)", "Steer: ", "Look:  ", "Ctrl-C ends it.")
        first = LINK.search(window.text)
        assert first is not None
        window.type("\n")
        window.until(lambda: len(set(re.findall(r"#steer=([\w-]{43})", window.text))) == 2, "a new link")
        keys = [each[2] for each in LINK.findall(window.text) if each[1] == "steer"]
        with begun(f"{first[1]}/#steer={keys[1]}"):
            old = httpx2.post(
                f"{first[1]}/api/session", json={"key": keys[0]}, headers={"origin": first[1], "x-dugnad": "1"},
                trust_env=False,
            )  # fmt: skip
            assert old.status_code == 401
        window.interrupt()
        assert window.ends() == 0
        assert "The server has ended." in window.text
        assert window.is_sane


def test_ctrl_c_ends_it_at_once_also_with_open_pages(project: Path) -> None:
    with started("web", "--json", "--port", "0", folder=project) as program:
        told = port_of(program)
        with begun(told["look"]) as client, open_streams(client, told, 20):
            program.send_signal(signal.SIGINT)
            assert program.wait(SECONDS) == 0
        assert program.stderr is not None
        assert program.stderr.read() == ""


@contextmanager
def open_streams(client: httpx2.Client, told: dict[str, Any], count: int) -> Iterator[None]:
    cookie = next(iter(client.cookies.jar))
    pages = []
    for _ in range(count):
        page = socket.create_connection(("127.0.0.1", told["port"]))
        lines = (f"GET /api/boards/{told['boards'][0]['id']}/stream HTTP/1.1", f"Host: 127.0.0.1:{told['port']}")
        page.sendall("\r\n".join((*lines, f"Cookie: {cookie.name}={cookie.value}", "", "")).encode())
        assert page.recv(15) == b"HTTP/1.1 200 OK"
        pages.append(page)
    yield
    for page in pages:
        page.close()


def test_to_look_there_is_no_link_to_steer(project: Path) -> None:
    with started("web", "--json", "--look", "--port", "0", folder=project) as program:
        told = port_of(program)
        assert told["steer"] is None
        begin(told["look"]).close()


def test_a_page_keeps_its_session_when_the_server_starts_again(project: Path) -> None:
    with started("web", "--json", "--port", "0", folder=project) as program:
        told = port_of(program)
        client = begin(told["steer"])
        program.send_signal(signal.SIGINT)
        assert program.wait(SECONDS) == 0
    with started("web", "--json", "--port", str(told["port"]), folder=project) as program:
        port_of(program)
        assert client.get("/api/session").json()["scope"] == "steer"
        again = client.post(
            "/api/session", json={"key": told["look"].partition("=")[2]},
            headers={"origin": told["url"], "x-dugnad": "1"},
        )  # fmt: skip
        assert again.status_code == 401
    client.close()


def test_several_boards_are_shown_in_one_page(project: Path, folder: Path) -> None:
    for name in ("site", "api"):
        (folder / name).mkdir()
        assert run("add", name, "--board", f"sqlite:///{folder}/{name}/.dugnad/board.db", folder=folder).returncode == 0
        assert run("trust", "--yes", folder=folder / name).returncode == 0
    words = [str(folder / "site"), f"sqlite:///{folder}/api/.dugnad/board.db", str(folder / "site")]
    with started("web", "--json", "--port", "0", *words, folder=project) as program:
        told = port_of(program)
        assert [each["name"] for each in told["boards"]] == ["site", "api"]
        with begun(told["look"]) as client:
            titles = [
                client.get(f"/api/boards/{each['id']}/state").json()["tasks"][0]["title"] for each in told["boards"]
            ]
            assert titles == ["site", "api"]


# What it refuses, each in one sentence.


def test_links_are_not_printed_into_a_pipe(project: Path) -> None:
    ran = run("web", folder=project)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("dugnad: The links that this prints let anybody who reads them use the page")


def test_a_port_that_is_taken_is_said(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refusal("--port", str(port), folder=project) == (
            f"dugnad: Port {port} is taken; choose another with --port.\n"
        )


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "10.0.0.1"])
def test_another_address_needs_tls_in_front(project: Path, address: str) -> None:
    assert "Put a server with TLS in front, and name it: --origin" in refusal("--address", address, folder=project)


@pytest.mark.parametrize("address", ["example.org", "", "127.0.0.1:80", "localhost.evil"])
def test_an_address_is_an_ip_address(project: Path, address: str) -> None:
    assert "is not an address" in refusal("--address", address, folder=project)


@pytest.mark.parametrize(
    "origin",
    ["http://example.org", "example.org", "https://", "https://a/b", "https://a?b", "https://u@a", "https://u:p@a",
     "https://a:x", "ftp://a", "https://å"],
)  # fmt: skip
def test_an_origin_is_https_and_a_name(project: Path, origin: str) -> None:
    assert "--origin must be like https://dugnad.example.org" in refusal("--origin", origin, folder=project)


@pytest.mark.parametrize("address", ["127.0.0.2", "::1", "localhost"])
def test_other_loopback_addresses_work(project: Path, address: str) -> None:
    with started("web", "--json", "--address", address, "--port", "0", folder=project) as program:
        told = port_of(program)
        page = httpx2.get(told["look"].partition("#")[0], trust_env=False)
        assert page.status_code == 200


def test_behind_tls_the_links_name_the_origin(project: Path) -> None:
    words = ("--address", "0.0.0.0", "--origin", "https://dugnad.example.org:443/", "--port", "0")
    with started("web", "--json", *words, folder=project) as program:
        told = port_of(program)
        assert told["look"].startswith("https://dugnad.example.org/#look=")
        headers = {"host": "dugnad.example.org"}
        page = httpx2.get(f"http://127.0.0.1:{told['port']}/", headers=headers, trust_env=False)
        assert page.status_code == 200
        assert (
            httpx2.get(f"http://127.0.0.1:{told['port']}/", headers={"host": "x"}, trust_env=False).status_code == 421
        )


def test_a_board_that_is_not_there_is_said_and_none_is_made(folder: Path) -> None:
    assert "There is no board at" in refusal(folder=folder, code=1)
    assert "There is no board at" in refusal(f"sqlite:///{folder}/x.db", folder=folder, code=1)
    assert "is neither a project's folder nor a board's URL" in refusal("nowhere", folder=folder)
    assert os.listdir(folder) == []


def test_a_project_that_is_not_accepted_may_only_be_looked_at(project: Path) -> None:
    (project / "dugnad.toml").write_text('[team]\nname = "strangers"\nagents = 9\n')
    assert "`dugnad trust` shows what it brings" in refusal(folder=project)
    with started("web", "--json", "--look", "--port", "0", folder=project) as program:
        assert port_of(program)["boards"][0]["name"] == "strangers"
    write_settings(project, '[team]\nname = "strangers"\nagents = 9\n')
    with started("web", "--json", "--port", "0", folder=project) as program:
        assert port_of(program)["steer"]


def test_a_board_that_is_named_in_the_environment_is_the_one_of_the_working_folder(project: Path, folder: Path) -> None:
    other = f"sqlite:///{folder}/other.db"
    assert run("add", "elsewhere", "--board", other, folder=folder).returncode == 0
    program = subprocess.Popen(
        [sys.executable, "-m", "dugnad", "web", "--json", "--port", "0"],
        cwd=project, env=environment(HOME=str(folder), DUGNAD_BOARD=other), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert port_of(program)["boards"][0]["where"] == "other.db"
    finally:
        program.kill()
        program.communicate()


def test_other_commands_do_not_load_the_server(project: Path) -> None:
    ran = run_anew("tasks", folder=project, PYTHONPROFILEIMPORTTIME="1")
    assert ran.returncode == 0
    assert "starlette" not in ran.stderr
    assert "uvicorn" not in ran.stderr
