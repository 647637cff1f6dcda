"""The page about the chat says what the chat does."""

from __future__ import annotations

from pathlib import Path

from dugnad.chat.commands import COMMANDS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "chat.md").read_text()


def test_the_page_lists_every_command_as_help_does() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `/")]
    assert rows == [f"| `{command.line.replace('|', chr(92) + '|')}` | {command.says} |" for command in COMMANDS]
