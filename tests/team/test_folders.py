"""Work outside git: a folder for each task, under a lock, with all of the project that can be copied."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.errors import ToolError
from dugnad.models import ScriptedModel
from dugnad.prompts import tell
from dugnad.settings import Limits
from dugnad.team.workspaces.folders import Folder, differing, folders
from dugnad.team.workspaces.workspace import Workspace, shared
from dugnad.tools.task_tools import whole_result
from dugnad.types import Claim, Done, Released
from tests.agent.stage_agent import all_told
from tests.conftest import Opener
from tests.team.stage_team import hosting, until_ended
from tests.team.stage_trees import finish, shell, workshop, write


def project_in(where: Path) -> Path:
    (where / "inner").mkdir(parents=True)
    (where / "inner" / "a").write_text("a\n")
    return where


async def claim_of(board: Board, title: str = "Work") -> Claim:
    await board.spawn("alice")
    host = await board.start_host("h1")
    await board.seat(host, name="alice")
    task = await board.put(title)
    claim = await board.claim("alice", host, task=task.id)
    assert claim is not None
    return claim


async def test_all_that_can_be_copied_is_and_the_rest_is_named(board: Board, tmp_path: Path) -> None:
    project = project_in(tmp_path / "p")
    os.mkfifo(project / "pipe")
    (project / "inner" / "out").symlink_to("/etc/passwd")
    (project / "run").write_text("#!/bin/sh\n")
    (project / "run").chmod(0o6755)
    async with workshop(board) as shop:
        place = await folders(shop, project, project / ".dugnad" / "work")(await claim_of(board), ())
    tree = project / ".dugnad" / "work" / "1"
    assert place.tree == tree
    assert "Without pipe, which cannot be copied." in place.told
    assert (tree / "inner" / "a").read_text() == "a\n"
    assert os.readlink(tree / "inner" / "out") == "/etc/passwd"
    assert (tree / "run").stat().st_mode & 0o7777 == 0o755
    assert not (tree / ".dugnad").exists()


async def test_one_at_a_time_and_who_could_not_begin_leaves_no_lock(board: Board, tmp_path: Path) -> None:
    project = project_in(tmp_path / "p")
    claim = await claim_of(board)
    async with workshop(board) as shop:
        places = folders(shop, project, project / ".dugnad" / "work")
        (project / ".dugnad").write_text("in the way")
        with pytest.raises(OSError, match="Not a directory"):
            await places(claim, ())
        (project / ".dugnad").unlink()
        opening = asyncio.ensure_future(places(claim, ()))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening})
        place = await _in_the_end(places, claim)
        with pytest.raises(ToolError, match="still in use by an earlier attempt at #1"):
            await places(claim, ())
        await place.close(Released("given up", resume=True), settled=True)
        again = await places(claim, ())
        assert again.told == tell("delivery.tmp_empty")  # The folder was made already.


async def _in_the_end(places: object, claim: Claim) -> Workspace:
    """When the thread that could not be stopped has come to its end."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await places(claim, ())  # type: ignore[operator, no-any-return]
            except ToolError:
                await asyncio.sleep(0.02)


async def test_half_a_copy_is_not_taken_for_a_whole_one(board: Board, tmp_path: Path) -> None:
    project = project_in(tmp_path / "p")
    half = project / ".dugnad" / "work" / "1.new"
    half.mkdir(parents=True)
    (half / "half").write_text("")
    async with workshop(board) as shop:
        place = await folders(shop, project, project / ".dugnad" / "work")(await claim_of(board), ())
    assert place.tree is not None
    assert os.listdir(place.tree) == ["inner"]


async def test_another_boards_task_of_the_same_number_has_another_folder(opener: Opener, tmp_path: Path) -> None:
    project = project_in(tmp_path / "p")
    board = await opener()
    claim = await claim_of(board)
    trees = []
    async with workshop(board) as shop:
        places = folders(shop, project, project / ".dugnad" / "work")
        first = await places(claim, ())
        assert isinstance(first, Folder)
        assert first.tree is not None
        (first.tree / "mine").write_text("x")
        await first.close(Done("x"), settled=True)
        trees.append(first.tree)
        lock = project / ".dugnad" / "work" / "1.lock"
        lock.write_text("1-00000000")  # As another board would have left it.
        second = await places(claim, ())
    assert second.tree is not None
    assert not (second.tree / "mine").exists()
    assert second.tree.name.startswith("1-")


async def test_a_lock_that_is_another_name_of_somebodys_file_is_not_written_to(board: Board, tmp_path: Path) -> None:
    project, precious = project_in(tmp_path / "p"), tmp_path / "precious"
    precious.touch()
    (project / ".dugnad" / "work").mkdir(parents=True)
    os.link(precious, project / ".dugnad" / "work" / "1.lock")
    async with workshop(board) as shop:
        await folders(shop, project, project / ".dugnad" / "work")(await claim_of(board), ())
    assert precious.read_bytes() == b""


async def test_a_reviewer_sees_the_work_and_another_round_is_another_review(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01))
    project = project_in(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])

    def step(request: object) -> object:
        title, turn = request.title, request.turn  # type: ignore[attr-defined]
        if title.startswith("Review"):
            seen = all_told(request)  # type: ignore[arg-type]
            return shell("cat made; echo mine > made") if turn == 1 else _verdict(seen)
        return [write("made", "one\n"), finish("Done."), write("made", "two\n"), finish("Done.")][turn - 1]

    model = ScriptedModel(step)  # type: ignore[arg-type]
    async with workshop(board) as shop:
        places = folders(shop, project, project / ".dugnad" / "work")
        async with hosting(board, model, workspaces=places):
            (done,) = await until_ended(board, await board.put("Write it", role="coder", review="reviewer"))
    assert done.state == "done"
    reviews = [each for each in await board.list_tasks() if each.title.startswith("Review")]
    assert [each.outcome for each in reviews] == ["changes-requested", "approved"]
    work = project / ".dugnad" / "work"
    assert (work / "1" / "made").read_text() == "two\n"  # And not what the reviewer made of its copy.
    assert sorted(each.name for each in work.iterdir() if each.is_dir()) == ["1"]


async def test_files_that_make_others_run_are_named_to_the_reviewer_and_in_the_result(
    opener: Opener, tmp_path: Path
) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01))
    project = project_in(tmp_path / "p")
    (project / "Makefile").write_text("all:\n")
    (project / "package.json").write_text("{}\n")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    commands = "echo x: >> Makefile; mkdir -p .github/workflows sub/.git; ln -s /etc/passwd .github/workflows/ci.yml"

    def step(request: object) -> object:
        if request.title.startswith("Review"):  # type: ignore[attr-defined]
            return finish("Good.", outcome="approved")
        return shell(commands) if request.turn == 1 else finish("Done.")  # type: ignore[attr-defined]

    async with workshop(board) as shop:
        places = folders(shop, project, project / ".dugnad" / "work")
        async with hosting(board, ScriptedModel(step), workspaces=places):  # type: ignore[arg-type]
            (done,) = await until_ended(board, await board.put("Write it", role="coder", review="reviewer"))
    (review,) = [each for each in await board.list_tasks() if each.title.startswith("Review")]
    assert "> .github/workflows/ci.yml (CI)\n> Makefile (build)\n> sub/.git (git)\n" in review.body
    named = "[it changes what other programs run: .github/workflows/ci.yml (CI), Makefile (build), sub/.git (git)]"
    assert whole_result(done).endswith(named)


def _verdict(seen: str) -> object:
    return finish("Good.", outcome="approved") if "two" in seen else finish("Say two.", outcome="changes-requested")


async def test_also_where_all_share_a_folder_another_round_is_another_review(opener: Opener, tmp_path: Path) -> None:
    board = await opener(limits=Limits(backoff_seconds=0.01))
    project = project_in(tmp_path / "p")
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])

    def step(request: object) -> object:
        title, turn = request.title, request.turn  # type: ignore[attr-defined]
        if title.startswith("Review"):
            return shell("cat made") if turn == 1 else _verdict(all_told(request))  # type: ignore[arg-type]
        return [write("made", "one\n"), finish("Done."), write("made", "two\n"), finish("Done.")][turn - 1]

    model = ScriptedModel(step)  # type: ignore[arg-type]
    async with workshop(board) as shop, hosting(board, model, workspaces=shared(shop, project)):
        (done,) = await until_ended(board, await board.put("Write it", role="coder", review="reviewer"))
    assert done.state == "done"
    assert (project / "made").read_text() == "two\n"


def test_what_a_folder_lacks_of_a_project_that_was_not_copied_is_no_change(tmp_path: Path) -> None:
    project = project_in(tmp_path / "p")
    for number in range(5_001):
        (project / str(number)).touch()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "made").write_text("made\n")
    assert differing(tree, project) == ["made"]
