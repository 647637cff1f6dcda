"""What a shell completes: only from boards that the user made or accepted, and only plain words."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import CompletionItem

from dugnad.board import open_board
from dugnad.cli import _COMMANDS, main
from dugnad.cli.accepted import Accepted
from dugnad.cli.parameters import OfTheBoard
from dugnad.cli.unaccepted import where_of
from tests.cli.shell import run

EVIL = (
    "$(touch${IFS}x)",
    "`id`",
    "a;id",
    "a b",
    "a\nplain,b",
    "--board=x",
    "-x",
    "a|b",
    "a>b",
    "~root",
    "a*",
    "é",
    "'",
    '"',
)


def completed(folder: Path, *words: str, **more: str) -> list[str]:
    """What bash is offered, as the script of the completion asks."""
    line = {
        "_DUGNAD_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("dugnad", *words)),
        "COMP_CWORD": str(len(words)),
    }
    ran = run(folder=folder, XDG_STATE_HOME=str(folder / "state"), **line, **more)
    return [each.partition(",")[2] for each in ran.stdout.splitlines() if each]


def make_board(path: Path, monkeypatch: pytest.MonkeyPatch, *, accepted: bool) -> None:
    async def make() -> str:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        async with await open_board(f"sqlite:///{path}") as board:
            await board.put("One")
            for at in range(len(EVIL) + 1):
                await board.spawn(f"mate{at}")
            return await board.identity()

    identity = asyncio.run(make())
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent.parent / "state"))
    if accepted:
        Accepted({"XDG_STATE_HOME": str(path.parent.parent / "state")}).add_board(
            where_of(f"sqlite:///{path}"), identity
        )


@pytest.mark.parametrize("accepted", [True, False])
def test_only_a_board_that_was_accepted_is_offered_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    make_board(folder / ".dugnad" / "board.db", monkeypatch, accepted=accepted)
    assert completed(folder, "show", "") == (["1"] if accepted else [])
    assert ("mate1" in completed(folder, "tell", "")) is accepted
    address = f"sqlite:///{folder}/.dugnad/board.db"
    assert completed(folder, "show", "", DUGNAD_BOARD=address) == ["1"]  # The user named it.


def test_settings_that_were_not_accepted_name_no_board_to_offer_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_board(folder / ".dugnad" / "board.db", monkeypatch, accepted=True)
    (folder / "dugnad.toml").write_text(f'board = "sqlite:///{folder}/.dugnad/board.db"\n')
    assert completed(folder, "show", "") == []


def test_another_board_at_an_accepted_place_is_not_offered_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_board(folder / ".dugnad" / "board.db", monkeypatch, accepted=True)
    (folder / ".dugnad" / "board.db").unlink()
    make_board(folder / ".dugnad" / "board.db", monkeypatch, accepted=False)
    assert completed(folder, "show", "") == []


def test_no_name_that_a_shell_would_act_on_is_offered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_board(folder / ".dugnad" / "board.db", monkeypatch, accepted=True)
    with sqlite3.connect(folder / ".dugnad" / "board.db") as connection:
        for at, name in enumerate(EVIL):
            connection.execute("UPDATE teammates SET name = ? WHERE name = ?", (name, f"mate{at}"))
    for command in ("tell", "stop"):
        assert completed(folder, command, "") == [f"mate{len(EVIL)}"]


class _Evil(OfTheBoard):
    name = "evil"

    async def offered(self, board: Any) -> Sequence[tuple[str, str]]:
        return [(each, "") for each in (*EVIL, "fine-1", "#2", "a.b@c:d")]


def test_every_source_of_words_goes_through_the_same_filter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_board(folder / ".dugnad" / "board.db", monkeypatch, accepted=True)
    monkeypatch.chdir(folder)
    context = click.Context(click.Command("x"))
    items: list[CompletionItem] = _Evil().shell_complete(context, click.Argument(["x"]), "")
    assert [each.value for each in items] == ["fine-1", "#2", "a.b@c:d"]


def test_no_parameter_completes_by_other_means() -> None:
    """Those of click offer our own words, or leave it to the shell, which quotes the names of files."""
    known = (OfTheBoard, click.Path, click.Choice)
    context = click.Context(main)
    for name in _COMMANDS:
        command = main.get_command(context, name)  # type: ignore[attr-defined]
        for parameter in command.params:
            if type(parameter.type).shell_complete is not click.ParamType.shell_complete:
                assert isinstance(parameter.type, known), (name, parameter)
            assert parameter._custom_shell_complete is None
