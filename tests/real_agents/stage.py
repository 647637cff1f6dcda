"""A project, a board and a model server for real agents, as a person has them."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dugnad.board import open_board
from tests.cli.shell import accept, environment
from tests.real_agents.programs import BIN, PATH, SECONDS, Ran, ended, opencode_settings
from tests.workspace.repository import new_repository

CHECK = "! test -e greeting.txt || grep -q hello greeting.txt"  # Red while there is a greeting without a hello.
_GATEWAY = (
    "--config", "model_provider=gateway", "--config", "model_providers.gateway.name=gateway",
    "--config", "model_providers.gateway.env_key=CODEX_API_KEY", "--config", "model_providers.gateway.base_url=URL/v1",
)  # fmt: skip


def project(folder: Path, settings: str = "") -> Path:
    """A git project with a check, whose settings are accepted."""
    root = new_repository(folder / "project")
    (root / "dugnad.toml").write_text(f'check = ["{CHECK}"]\n{settings}')
    accept(root)
    return root


def table(name: str, url: str) -> str:
    """[commands.NAME] of a user with a gateway on this machine; everything else is the preset's."""
    service = f'[commands.{name}]\nservices = ["{url.removeprefix("http://")}"]\n'
    if name == "claude":
        return f'{service}environment = {{ ANTHROPIC_BASE_URL = "{url}" }}\n'
    if name == "opencode":
        return f"{service}environment = {{ OPENCODE_CONFIG_CONTENT = '''{opencode_settings(url)}''' }}\n"
    quiet = ("--config", "features.plugins=false", "--config", "analytics.enabled=false")
    run = ("codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *quiet)
    words = [*run, *(each.replace("URL", url) for each in _GATEWAY), "-"]
    return f"{service}run = {json.dumps(words)}\n"


@dataclass(frozen=True)
class Desk:
    """Where a person works: a project, and a home with the own settings."""

    root: Path
    home: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.root}/.dugnad/board.db"

    def write(self, settings: str) -> None:
        place = self.home / ".config" / "dugnad" / "config.toml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(settings)
        place.chmod(0o600)

    def environment(self, **more: str) -> dict[str, str]:
        assert (BIN / "claude").exists(), "the real agents are missing: run `make agents`, which fetches them with npm"
        keys = dict.fromkeys(("ANTHROPIC_API_KEY", "CODEX_API_KEY"), "none")
        return environment(**{"HOME": str(self.home), "PATH": PATH, **keys, **more})

    async def run(self, *words: str) -> Ran:
        """`dugnad ...` until its end; several at the same time if need be."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dugnad", *words, cwd=self.root, env=self.environment(),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        return await ended(process)

    async def json(self, *words: str) -> Any:
        return json.loads(await self.says(*words, "--json"))

    async def says(self, *words: str) -> str:
        ran = await self.run(*words)
        assert ran.code == 0, ran
        return ran.output

    async def answered(self, running: asyncio.Task[Any], question: str, answer: str) -> Any:
        """What the running work comes to, if the person answers this question meanwhile."""
        asked = asyncio.create_task(self._asked(question))
        await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
        assert asked.done(), f"it ended without asking: {await running}"
        await self.says("answer", str(asked.result()), answer)
        return await running

    async def _asked(self, question: str) -> int:
        async with await open_board(self.url) as board:
            while True:
                with board.watch(["log"]) as watch:
                    for each in await board.requests():
                        if question in each.text and each.task is not None:
                            return each.task
                    await watch.wait(SECONDS)


def desk(folder: Path, settings: str = "") -> Desk:
    (folder / "home").mkdir()
    return Desk(project(folder, settings), folder / "home")
