"""Whatever a repository, its settings, its attributes or a tree name, no command of ours has git run it."""

from __future__ import annotations

import ast
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dugnad.workspace.git.command import NO_WALLS, GitCall, Walls, ask, walls
from dugnad.workspace.git.git import ENVIRONMENT, GitTrouble
from dugnad.workspace.git.worktrees import Trees
from tests.proof import every
from tests.workspace.git_attacked import Stage, everything, with_settings
from tests.workspace.git_attacks import ATTACKS, Attack
from tests.workspace.repository import new_repository, trees_of

SOURCE = Path(__file__).parents[2] / "src" / "dugnad"
NAMED = {each.name: each for each in ATTACKS}
# Of those with settings in .git/config alone: what commands of ours come past, if they read it.
MET = ("clean filter", "smudge filter", "process filter", "filter without a name", "merge.default", "core.fsmonitor",
       "core.hooksPath")  # fmt: skip
# Without walls, our settings and the choice of commands have to do.
WITHOUT_WALLS = (
    *MET, "merge driver", "info/attributes", "hook reference-transaction", "hook post-index-change", "include.path",
    "includeIf onbranch:**", "config.worktree", "the user's own settings", "GIT_CONFIG_COUNT",
    *(each for each in NAMED if "in a tree" in each or "submodule" in each),
)  # fmt: skip


def staged(attack: Attack, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage(attack=attack, folder=folder / "s")
    stage.set_up()
    for name, value in stage.environment.items():
        monkeypatch.setenv(name, value)
    stage.told.unlink(missing_ok=True)
    return stage


@pytest.mark.parametrize("attack", every(4, ATTACKS), ids=lambda each: each.name)
async def test_nothing_is_run_that_plain_git_runs(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(attack, tmp_path, monkeypatch)
    await everything(stage)
    assert not stage.has_run()
    assert stage.control(), "plain git does not run it either, so nothing was shown"


def test_there_are_enough_attacks_and_each_has_a_name_of_its_own() -> None:
    assert len(ATTACKS) >= 40
    assert len(NAMED) == len(ATTACKS)


@pytest.mark.parametrize("name", every(4, WITHOUT_WALLS))
async def test_settings_of_our_own_and_the_choice_of_commands_hold_without_any_wall(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(NAMED[name], tmp_path, monkeypatch)

    def take_down(trees: Trees) -> None:
        trees.git = replace(trees.git, behind=NO_WALLS)

    await everything(stage, take_down)
    assert not stage.has_run()


@pytest.mark.parametrize("which", ["calls", "files"])
@pytest.mark.parametrize("name", every(4, MET))
async def test_each_wall_holds_alone_though_git_reads_the_settings(
    name: str, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(NAMED[name], tmp_path, monkeypatch)
    here = walls()
    assert here.calls
    assert here.files
    alone = replace(here, files=False) if which == "calls" else replace(here, calls=b"")

    async def ran(behind: Walls) -> bool:
        def read_them(trees: Trees) -> None:
            trees.git = replace(trees.git, behind=behind, stale_seconds=0.1)
            with_settings(trees, stage.filled(stage.attack.settings))

        with suppress(GitTrouble):
            await everything(stage, read_them)
        return stage.has_run()

    assert not await ran(alone)
    shutil.rmtree(stage.root / ".dugnad" / "trees")
    shutil.rmtree(stage.root / ".git" / "dugnad")
    for each in ("heads/dugnad", "dugnad"):
        shutil.rmtree(stage.root / ".git" / "refs" / each, ignore_errors=True)
    assert await ran(NO_WALLS), "without a wall it is not run either, so nothing was shown"


async def test_settings_planted_while_trees_are_open_switch_nothing_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {".gitattributes": "*.txt filter=x\n*.bin filter=\n*.py merge=m\n"}
    evil = "".join(each.settings for each in ATTACKS if each.name in MET or each.name.startswith("gpg"))
    attack = Attack(name="all", control="git status", files=files)
    stage = staged(attack, tmp_path, monkeypatch)

    def plant(trees: Trees) -> None:
        beside = {f"hooks/{each}": "#!/bin/sh\n{run}\n" for each in ("reference-transaction", "post-index-change")}
        stage.attack = replace(attack, settings=evil, beside={**beside, "info/attributes": "* filter=x\n"})
        stage.plant()

    await everything(stage, plant)
    assert not stage.has_run()
    assert stage.control()


# The door.


def test_one_place_starts_git() -> None:
    """It is asked in three places: about a project, about its remote, and by the demo in a project of its own."""
    starts, asks = set(), set()
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and "GitCall" in {each.name for each in node.names}:
                asks.add(name)
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
                "Popen", "run", "call", "check_output", "check_call", "create_subprocess_exec", "system", "popen",
                "create_subprocess_shell", "execv", "execve", "execvp", "posix_spawn", "spawnv",
            ):  # fmt: skip
                words = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                if any(isinstance(each, str) and each.split()[:1] == ["git"] for each in words):
                    starts.add(name)
    assert starts == set()
    assert asks == {"workspace/git/git.py", "workspace/git/remote.py", "cli/demo.py"}


async def asked(*words: str, writable: tuple[Path, ...] = (), behind: Walls | None = None) -> tuple[int, bytes, bytes]:
    program = shutil.which("git") or "git"
    call = GitCall(argv=(program, *words), environment=ENVIRONMENT, folder=Path("/"), writable=writable)
    return await ask(call, seconds=30.0, behind=behind)


async def test_behind_the_walls_git_starts_nothing_and_writes_nowhere_else(tmp_path: Path) -> None:
    alias = ("-c", f"alias.x=!touch {tmp_path}/ran", "x")
    for behind in (walls(), replace(walls(), files=False), replace(walls(), calls=b"")):
        assert (await asked(*alias, behind=behind))[0] != 0
        assert not (tmp_path / "ran").exists()
    assert (await asked(*alias, behind=NO_WALLS))[0] == 0
    assert (tmp_path / "ran").exists()
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        words = ("--git-dir", str(tmp_path / name / "new"), "init", "--quiet")
        code, _, errors = await asked(*words, writable=(tmp_path / "inside",))
        assert (code == 0) == (name == "inside"), errors
    assert os.listdir(tmp_path / "outside") == []


async def test_the_walls_are_around_git_alone(tmp_path: Path) -> None:
    """The thread that went behind them is gone; others start and write what they like."""
    await asked("--version")
    (tmp_path / "a").write_text("x")
    assert shutil.which("true")
    assert os.waitstatus_to_exitcode(os.system("true")) == 0  # noqa: ASYNC221


def test_git_has_no_use_for_the_one_call_that_is_left_to_start_it() -> None:
    program = Path(os.path.realpath(shutil.which("git") or "git")).read_bytes()
    assert b"\0fork\0" in program
    assert b"\0vfork\0" not in program
    assert b"\0posix_spawn" not in program


async def test_a_git_that_is_a_script_leads_to_the_one_that_does_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = new_repository(tmp_path / "p")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "git"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("git")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    trees = await trees_of(root)
    assert trees.git.program != str(script)
    assert await trees.git.own_head() is not None
