"""What the tests share: a real PostgreSQL, a fresh board on each database, a controllable clock.

Every board that a test opens through these fixtures is checked at the end: the log replays to what the tables say, and
the numbers of tasks are right.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from dugnad.board import Board, open_board
from dugnad.settings import Limits, Patience
from dugnad.workspace.files.files import Files
from dugnad.workspace.sandbox.sandbox import Probe, Sandbox, find_bwrap
from tests.postgres_server import PostgresServer
from tests.proof import leave_to_proof
from tests.ready_boards import ReadyBoards, ReadyFile

hypothesis.settings.register_profile("suite", deadline=None)  # No test fails because the machine is slow.
hypothesis.settings.load_profile("suite")

Opener = Callable[..., Awaitable[Board]]
_lenders: dict[str, ReadyBoards] = {}  # By the address of the board.
_ready_file = ReadyFile()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", action="store_true", help="the long versions of the process tests")


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and one of nohup's a hangup; so would all programs that tests start."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported stays until the end, so no garbage is looked for in it, neither now nor while a test runs."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # A twentieth of the time went into looking for garbage.


@pytest.hookimpl(specname="pytest_collection", tryfirst=True)
def import_own_share(session: pytest.Session) -> None:
    """Each worker begins with other files, so that a file without compiled code is compiled by one of them alone."""
    worker = getattr(session.config, "workerinput", {"workerid": "gw0", "workercount": 1})
    if worker["workercount"] > 1:
        files = sorted(file for place in session.config.args for file in Path(place).resolve().rglob("test_*.py"))
        for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
            name = ".".join(file.relative_to(session.config.rootpath).with_suffix("").parts)
            with contextlib.suppress(Exception):  # Collecting the file will say what is wrong with it.
                importlib.import_module(name)


@pytest.hookimpl(tryfirst=True)  # Before `-m` chooses.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_to_proof(items)


@pytest.fixture(scope="session", autouse=True)
def state() -> Iterator[None]:
    """What is accepted in a test is remembered in a folder of the tests' own, also by the processes they start."""
    made = tempfile.mkdtemp(prefix="dugnad-state-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", made)
        yield
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server that is there for this run. Never skipped: without a server the tests fail."""
    if given := os.environ.get("DUGNAD_TEST_POSTGRES"):
        yield given
        return
    server = PostgresServer()
    try:
        server.start()
        yield server.url
    finally:
        server.remove()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private folder, in memory where that is possible."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="dugnad-test-", dir=parent))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def ready_boards(postgres: str) -> Iterator[ReadyBoards]:
    made = ReadyBoards(postgres)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The address of a board that does not exist yet, on each database in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{folder}/board.db"
        return
    ready: ReadyBoards = request.getfixturevalue("ready_boards")
    url = ready.address()
    _lenders[url] = ready
    yield url
    del _lenders[url]
    ready.take_back(url)


@pytest.fixture
async def opener(url: str, folder: Path) -> AsyncIterator[Opener]:
    """Opens the test's board, as often as asked: each time as another process would, with its own connections."""
    opened: list[Board] = []

    async def open_one(**settings: Any) -> Board:
        if not opened and url in _lenders:
            await asyncio.to_thread(_lenders[url].lend, url)
        elif not opened and url == f"sqlite:///{folder}/board.db":
            await asyncio.to_thread(_ready_file.copy, folder / "board.db")
        settings.setdefault("limits", Limits(backoff_seconds=0.01))
        settings.setdefault("patience", Patience(reconnect_seconds=10, poll_seconds=0.5))
        opened.append(await open_board(url, **settings))
        return opened[-1]

    yield open_one
    if opened:
        observed = await opened[0].observed_state()
        assert await opened[0].replayed_state() == observed
        assert await opened[0].count_tasks() == Counter(task["state"] for task in observed["task"].values())
    for each in opened:
        await each.close()


@pytest.fixture
async def board(opener: Opener) -> Board:
    return await opener()


# The workspace: files beneath a root; a sandbox, and a tree to run in.


@pytest.fixture
def files(folder: Path) -> Files:
    (folder / "root").mkdir()
    return Files(folder / "root")


@pytest.fixture
def root(files: Files) -> Path:
    return files.beneath.root


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    bwrap = find_bwrap(os.environ["PATH"], outside=Path("/nonexistent"))
    assert bwrap is not None, "bubblewrap is missing: run make setup, or install it"
    made = Sandbox(Probe(level="strict", says="", bwrap=bwrap))
    yield made
    await made.close()


@pytest.fixture
def tree(folder: Path) -> Path:
    made = folder / "tree"
    made.mkdir()
    return made
