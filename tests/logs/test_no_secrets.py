"""A secret reaches no log line, no kept traceback and no sentence about a failure, wherever it was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from dugnad.board import Board, open_board
from dugnad.config.user import UserSettings, open_named_model, read_user
from dugnad.errors import BoardUnreachable, ToolError
from dugnad.logs import logger, secrets, without_secrets
from dugnad.logs.handlers import start_logging
from dugnad.team.report import report
from tests.models.asking import CHAT, address
from tests.models.provider_server import Fault, ProviderServer
from tests.team.stage_team import Raising, hosting, until_status

ENVIRONMENT = "Xenv-4711-key"  # OPENAI_API_KEY
CONFIG = "Xcfg-4711'quoted\"key"  # The variable that config.toml names.
SERVER = "Xmcp-4711-key"  # The variable that an MCP server is given.
COMMAND = "Xcmd-4711-key"  # The variable that an external agent is given.
PASSWORD = "Xpass-4711@:/#%word"
ALL = (ENVIRONMENT, CONFIG, SERVER, COMMAND, PASSWORD)
_LOG = logger("dugnad.tests")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(secrets, "_KNOWN", {})
    monkeypatch.setenv("OPENAI_API_KEY", ENVIRONMENT)
    yield
    start_logging(None, keeps=False, screen=False, folder=Path("/nowhere"))


def nothing_of(text: str) -> None:
    assert "4711" not in text, [line for line in text.splitlines() if "4711" in line]


def settings(folder: Path, url: str = "http://127.0.0.1:1/v1") -> UserSettings:
    """A config.toml that names a variable in every place that takes a secret."""
    (folder / "dugnad").mkdir(exist_ok=True)
    (folder / "dugnad" / "config.toml").write_text(
        f'[models."{CHAT}"]\nbase_url = "{url}"\napi_key_env = "FIRST"\n'
        '[mcp.desk]\ncommand = ["desk"]\nenvironment = { DESK = "env:SECOND" }\n'
        '[commands.other]\nrun = ["other"]\nreads = "text"\nenvironment = { OTHER = "env:THIRD" }\n'
    )
    named = {"FIRST": CONFIG, "SECOND": SERVER, "THIRD": COMMAND, "PATH": "/bin", "HOME": str(folder)}
    return read_user({**named, "XDG_CONFIG_HOME": str(folder)})


async def test_no_secret_is_in_the_log_on_the_board_or_in_the_report(
    board: Board, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging("debug", keeps=True, screen=False, folder=folder / "logs")
    body = f'{{"error":{{"message":"Incorrect API key provided: {ENVIRONMENT}","type":"x"}}}}'.encode()
    async with ProviderServer([Fault(status=401, body=body)]) as server:
        model = open_named_model(CHAT, settings(folder, address(CHAT, server)))
        with pytest.raises(BoardUnreachable) as unreachable:
            await open_board(f"postgresql://me:{quote(PASSWORD, safe='')}@127.0.0.1:1/db")
        nothing_of(str(unreachable.value))
        said = f"{ALL!r} {' '.join(ALL)} Authorization: Bearer other-4711 postgresql://me:other-4711@host/db"
        models = {"alice": model, "bob": Raising(ValueError(said))}
        for name in models:
            await board.spawn(name)
            await board.put(f"For {name}", assignee=name)
        async with hosting(board, models):
            refused = await until_status(board, "alice", "failed")
            await until_status(board, "bob", "failed")
        await model.close()
    _LOG.debug("told %s why=%s", said, said)
    logs = folder / "logs" / "dugnad-1.log"
    assert "[OPENAI_API_KEY]" in (refused.reason or "")
    (traceback,) = (await board.tracebacks(2)).values()
    assert "ValueError: " in traceback
    assert "[FIRST]" in traceback or "[api_key]" in traceback
    nothing_of(traceback)
    nothing_of(logs.read_text())
    streams = capsys.readouterr()
    assert "event=bug" in streams.err
    nothing_of(streams.out + streams.err)
    nothing_of(str([await board.team(), await board.list_tasks(), await board.attempts(1), await board.attempts(2)]))
    nothing_of(str([await board.events(0), await report(board, [1, 2])]))


def test_what_a_server_and_an_agent_are_given_is_in_no_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = settings(folder)
    assert user.commands["other"].environment["OTHER"] == COMMAND
    (server,) = user.servers
    assert server.without_secrets(f"it printed {SERVER}") == "it printed [SECOND]"
    start_logging("debug", keeps=False, screen=False, folder=Path("/nowhere"))
    _LOG.warning("server-ended why=%s", ToolError(f"it printed {SERVER} and {COMMAND}"))
    text = capsys.readouterr().err
    assert "it printed [SECOND] and [THIRD]" in text
    nothing_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abc-4711", "{'authorization': 'Basic YWJjLTQ3MTE4711='}", "x-api-key: 4711",
        "password=4711", "postgresql://me:4711@db.example.org/x?sslmode=off", "https://4711@example.org/",
        "token='abc4711'", "Bearer abcdefgh4711", "the key sk-proj-abcdefgh4711ijkl was refused",
        "GITHUB_TOKEN=ghp_4711", 'api_key="abc4711"', '"apikey": "abc4711"',
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_hidden_although_nobody_named_it(text: str) -> None:
    assert "[hidden]" in without_secrets(text)
    nothing_of(without_secrets(text))


def test_ordinary_words_stay() -> None:
    for text in ("tokens=4711", "max_tokens: 4711", "key 4711 of the map", "#12 is done", "a passage of 4711 words"):
        assert without_secrets(text) == text


def test_a_short_value_is_not_taken_for_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "on")
    assert without_secrets("go on") == "go on"
