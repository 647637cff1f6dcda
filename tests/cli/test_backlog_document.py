"""What docs/backlog.md shows is what happens: its files are written, and its commands are run one after another."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.shell import Shell

PAGE = (Path(__file__).parent.parent.parent / "docs" / "backlog.md").read_text()


def test_the_page_shows_what_happens(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    shell, ran = Shell(url), 0
    for kind, name, content in re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if name:
            (folder / name).write_text(content)
        for command, said in re.findall(r"^\$ dugnad (.*)\n((?:(?!\$ ).*\n)*)", content, re.MULTILINE):
            result = shell(*shlex.split(command))
            assert result.stdout + result.stderr == said, command
            assert kind == "console"
            ran += 1
    assert ran == 6
