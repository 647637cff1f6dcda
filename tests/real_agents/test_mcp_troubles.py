"""Real programs over MCP that die, forget, repeat or flood, and several of them on one board."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import psutil
import pytest

from dugnad.board import Board, open_board
from dugnad.types import Task
from tests.models.provider_server import ProviderServer
from tests.real_agents.clients import Client, folder_of, holding
from tests.real_agents.programs import SECONDS, ended
from tests.real_agents.puppet import Heard, Many, Puppet, Run, Say, Step, Use, Write
from tests.real_agents.stage import Desk, desk
from tests.workspace.repository import git


def done(claim: dict[str, int], result: str) -> Use:
    return Use("finish", {**claim, "how": "done", "result": result})


def hangs(heard: Heard) -> Generator[Step, str, None]:
    """It begins, says so, and then waits for something that never comes."""
    said = yield Use("next_task", {})
    yield Write(f"{folder_of(said)}/half.txt", "half\n")
    yield Use("note", {**holding(said), "title": "Halves", "text": "The first half is written."})
    yield Run("sleep 3600")


def goes_on(heard: Heard) -> Generator[Step, str, None]:
    said = yield Use("next_task", {})
    found = yield Run(f"cat {folder_of(said)}/half.txt")
    assert "half" in found, found
    yield Write(f"{folder_of(said)}/rest.txt", "rest\n")
    yield done(holding(said), "The other half is there too.")
    yield Say("It is whole.")


def leaves(heard: Heard) -> Generator[Step, str, None]:
    said = yield Use("next_task", {})
    yield Write(f"{folder_of(said)}/half.txt", "half\n")
    yield Say("I am done, I think.")


def repeats(heard: Heard) -> Generator[Step, str, None]:
    """It gives its task back, takes it again, and then acts with the number of the first time."""
    first = holding((yield Use("next_task", {})))
    yield Use("finish", {**first, "how": "released", "result": "Not now."})
    second = holding((yield Use("next_task", {})))
    assert second["task"] == first["task"], (first, second)
    assert second["epoch"] > first["epoch"], (first, second)
    for late in (done(first, "Late."), Use("progress", {**first, "text": "Late."})):
        said = yield late
        assert "you hold it with epoch" in said, said
        assert "Noted" not in said, said
    said = yield done(second, "In time.")
    assert "is over" in said, said
    yield Say("It is done.")


def floods(heard: Heard) -> Generator[Step, str, None]:
    claim = holding((yield Use("next_task", {})))
    for _ in range(3):
        yield Many(tuple(Use("progress", {**claim, "text": f"Step {n}."}) for n in range(40)))
    said = yield done(claim, "Among many words.")
    assert "is over" in said, said
    yield Say("It is done.")


async def until(at: Desk, holds: Callable[[Task], bool], task: int = 1) -> Task:
    """Wait until this is so of a task."""
    async with await open_board(at.url) as board:
        return await asyncio.wait_for(_until(board, holds, task), SECONDS)


async def _until(board: Board, holds: Callable[[Task], bool], task: int) -> Task:
    while True:
        with board.watch(["log"]) as watch:
            if holds(found := await board.find(task)):
                return found
            await watch.wait(SECONDS)


async def noted(at: Desk) -> None:
    async with await open_board(at.url) as board, asyncio.timeout(SECONDS):
        while True:
            with board.watch(["notes"]) as watch:
                if await board.search_notes("first half"):
                    return
                await watch.wait(SECONDS)


def server_of(client: asyncio.subprocess.Process) -> psutil.Process:
    """The process of `dugnad mcp` that a program started. The child of it guards it."""
    below = psutil.Process(client.pid).children(recursive=True)
    found = [each for each in below if "mcp" in each.cmdline() and any("dugnad" in word for word in each.cmdline())]
    server, guardian = found
    assert guardian.ppid() == server.pid
    return server


@pytest.mark.parametrize("dies", ["client", "server"])
async def test_what_a_killed_program_held_is_finished_by_another(dies: str, folder: Path) -> None:
    at = desk(folder)
    await at.says("add", "Write two halves")
    async with ProviderServer(Puppet(hangs)) as before, ProviderServer(puppet := Puppet(goes_on)) as after:
        client = await Client("claude", at, before.url).start()
        try:
            await noted(at)
            os.kill(client.pid if dies == "client" else server_of(client).pid, signal.SIGKILL)
            await until(at, lambda task: task.state == "ready")  # The server sees that, and its guardian if it is dead.
            ran = await Client("codex", at, after.url).run()
        finally:
            if client.returncode is None:
                os.killpg(client.pid, signal.SIGKILL)
            await ended(client)
    assert (ran.code, puppet.wrong) == (0, ""), ran
    assert (await until(at, lambda task: task.state == "done")).teammate == "codex"
    assert git(at.root, "show", "dugnad/main:half.txt", "dugnad/main:rest.txt") == "half\nrest"


async def test_a_program_that_never_calls_finish_gives_its_task_back(folder: Path) -> None:
    at = desk(folder)
    await at.says("add", "Write two halves")
    async with ProviderServer(Puppet(leaves)) as before, ProviderServer(puppet := Puppet(goes_on)) as after:
        # Codex kills its server a few milliseconds after it asked it to end.
        assert (await Client("codex", at, before.url).run()).code == 0
        await until(at, lambda task: task.state == "ready")
        ran = await Client("claude", at, after.url).run()
    assert (ran.code, puppet.wrong) == (0, ""), ran
    assert (await until(at, lambda task: task.state == "done")).teammate == "claude"


@pytest.mark.parametrize("play", [repeats, floods])
@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_one_that_repeats_an_old_number_or_floods_finishes_once(name: str, play: object, folder: Path) -> None:
    at = desk(folder)
    await at.says("add", "Say something")
    async with ProviderServer(puppet := Puppet(play)) as server:  # type: ignore[arg-type]
        ran = await Client(name, at, server.url).run()
    assert (ran.code, puppet.wrong) == (0, ""), ran
    task = await until(at, lambda task: task.state == "done")
    assert (task.result or "").startswith(("In time.", "Among many words."))


_TITLE = re.compile(r"Your task is #\d+: (Write|Now write) file (\d)")


def works(heard: Heard) -> Generator[Step, str, None]:
    """As long as there are tasks: a file for each. A teammate of dugnad's own has other tools for the same."""
    if heard.tool("next_task") is None and "ToolSearch" not in heard.tools and not heard.scripts:
        number = _TITLE.findall(heard.prompt)[-1][1]
        yield Use("write_file", {"path": f"file{number}.txt", "text": "by dugnad\n"})
        yield Use("finish", {"result": "Written."})
        return
    own = False
    said = yield Use("next_task", {})
    while "You hold task" in said:
        ((first, number),) = _TITLE.findall(said)  # The text may name the tasks of others, too.
        own = own or first == "Now write"
        yield Write(f"{folder_of(said)}/file{number}.txt", "by a client\n")
        said = yield done(holding(said), "Written.")
        assert "is over" in said, said
        said = yield Use("tasks", {"state": "ready"})
        if own and "Write file" not in said:
            break
        said = yield Use("next_task", {})
    yield Say("Nothing is left.")


async def test_two_programs_and_a_teammate_work_one_board_side_by_side(folder: Path) -> None:
    at = desk(folder)
    for number in range(1, 10):
        # The rest is for one of them alone, so that nobody is too late for all of it.
        to = ("", "claude", "codex", "alice")[max(0, number - 6)]
        await at.says("add", f"{'Write' if number < 7 else 'Now write'} file {number}", *(("--to", to) if to else ()))
    async with ProviderServer(puppet := Puppet(works)) as server:
        at.write(f'[models]\n"openai:puppet" = {{ base_url = "{server.url}/v1", api_key_env = "CODEX_API_KEY" }}\n')
        clients = [Client(name, at, server.url).run() for name in ("claude", "codex")]
        *ran, team = await asyncio.gather(*clients, at.run("run", "--model", "openai:puppet", "--agents", "1"))
    assert puppet.wrong == "", ran
    assert [each.code for each in ran] == [0, 0], ran
    tasks = (await at.json("tasks", "--all"))["tasks"]
    assert {each["title"]: each["teammate"] for each in tasks if each["state"] != "done"} == {}, (team, ran)
    assert {each["teammate"] for each in tasks} >= {"claude", "codex"}
    assert len({each["teammate"] for each in tasks}) == 3
    written = git(at.root, "ls-tree", "--name-only", "dugnad/main").split()
    assert {f"file{number}.txt" for number in range(1, 10)} <= set(written)
