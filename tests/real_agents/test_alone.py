"""The puppet and each real program, without dugnad: what they do together is what the other tests rely on."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.models.provider_server import ProviderServer
from tests.real_agents.programs import NAMES, Program, elsewhere
from tests.real_agents.puppet import Heard, Puppet, Run, Say, Step, Write


def play(heard: Heard) -> Generator[Step, str, None]:
    assert "Say which file" in heard.prompt
    yield Write("greeting.txt", "hello\nworld\n")
    said = yield Run("wc -l < greeting.txt")
    yield Say(f"greeting.txt has this many lines: {said.strip()[-1:]}")


@pytest.mark.parametrize("name", NAMES)
async def test_it_plays_with_its_own_tools_and_asks_nobody_else(name: str, folder: Path, tree: Path) -> None:
    puppet = Puppet(play)
    async with ProviderServer(puppet) as server, elsewhere() as others:
        program = Program(name, folder, server.url, others.environment)
        ran = await program.run("Say which file you made.", tree)
    assert ran.code == 0, ran
    assert (tree / "greeting.txt").read_text() == "hello\nworld\n"
    assert "greeting.txt has this many lines: 2" in ran.output
    assert puppet.answers == 3
    assert others.asked == []
