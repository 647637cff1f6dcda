"""Commands are started, ended and cleared away by the helper, whatever happens to them, to it or to who asked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dugnad.errors import ToolError
from dugnad.workspace.sandbox.processes import processes_with
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.workspace.attempts import without
from tests.workspace.running import MARK, direct, found_bwrap, marked, run, strict_here, until


async def test_a_command_that_takes_too_long_ends_with_all_it_started(sandbox: Sandbox, tree: Path) -> None:
    command = f"for i in 1 2 3; do setsid sh -c 'trap \"\" TERM; sleep 500; : {MARK}' & done; echo on; sleep 500"
    ran = await run(sandbox, command, tree, seconds=0.5)
    assert (ran.code, ran.timed_out) == (124, True)
    assert not marked()


async def test_what_a_command_left_in_the_background_ends_with_it(sandbox: Sandbox, tree: Path) -> None:
    ran = await run(sandbox, f"(setsid sh -c 'sleep 500; : {MARK}' &); echo up", tree)
    assert ran.output == b"up\n"
    assert not marked()


async def test_a_cancelled_command_is_gone_when_the_caller_hears_of_it(sandbox: Sandbox, tree: Path) -> None:
    task = asyncio.create_task(run(sandbox, f"touch up; sleep 500; : {MARK}", tree))
    await until((tree / "up").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(tree) == ["up"]  # Looked at first: what holds the protected paths goes last.
    assert not marked()


async def test_commands_run_side_by_side(sandbox: Sandbox, tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    said, heard = await asyncio.gather(run(sandbox, "echo hello > pipe", tree), run(sandbox, "cat pipe", tree))
    assert (said.code, heard.output) == (0, b"hello\n")


def test_the_dead_are_left_until_they_are_reaped() -> None:
    with subprocess.Popen(["true"], start_new_session=True) as dead:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        assert processes_with(3, dead.pid) == [dead.pid]
    assert processes_with(3, dead.pid) == []


def test_the_dead_of_others_are_not_left() -> None:
    """Their parent left the session and never reaps them: waiting for it would be for ever."""
    code = (
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "if not (child := os.fork()): os._exit(0)\n"
        "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT); os.setsid(); print(child, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        dead = psutil.Process(int(shell.stdout.readline()))
        parent = dead.parent()
        shell.wait()
        assert (dead.status(), os.getsid(dead.pid)) == (psutil.STATUS_ZOMBIE, shell.pid)
        assert processes_with(3, shell.pid) == []
        assert parent is not None
        parent.kill()


def groups_of(starter: int) -> list[str]:
    return [at for at, _, _ in os.walk("/sys/fs/cgroup") if Path(at).name.startswith(f"dugnad-{starter}-")]


async def test_two_hundred_commands_leave_no_process_and_no_file(sandbox: Sandbox, tree: Path) -> None:
    await run(sandbox, "true", tree)
    [starter] = [
        each for each in psutil.Process().children() if "dugnad.workspace.sandbox.helper.server" in each.cmdline()
    ]
    descriptors = starter.num_fds()
    command = f"touch /tmp/{MARK} /dev/shm/{MARK}; sleep 300 & (setsid sleep 300 &) ; echo {MARK}"
    for _ in range(50):
        ran = await asyncio.gather(*(run(sandbox, command, tree) for _ in range(4)))
        assert {each.code for each in ran} == {0}
    assert starter.children(recursive=True) == []
    assert starter.num_fds() == descriptors
    assert not marked()
    assert not groups_of(starter.pid)
    assert not [place for place in ("/tmp", "/dev/shm") if MARK in os.listdir(place)]
    assert os.listdir(tree) == []


async def test_nothing_outlives_a_starter_that_was_killed(sandbox: Sandbox, tree: Path) -> None:
    task = asyncio.create_task(run(sandbox, f"touch up; sleep 500; : {MARK}", tree))
    await until((tree / "up").exists)
    [starter] = [
        each for each in psutil.Process().children() if "dugnad.workspace.sandbox.helper.server" in each.cmdline()
    ]
    starter.kill()
    with pytest.raises(ToolError, match="helper"):
        await task
    await until(marked, holds=False)
    assert (await run(sandbox, "echo again", tree)).output == b"again\n"
    assert os.listdir(tree) == ["up"]  # What the killed one held in place is gone as well.
    assert not groups_of(starter.pid)


@pytest.mark.parametrize("which", [0, 1], ids=["bubblewrap", "the namespace's first process"])
async def test_a_command_whose_sandbox_was_killed_from_outside_has_failed(
    sandbox: Sandbox, tree: Path, which: int
) -> None:
    task = asyncio.create_task(run(sandbox, "touch up; sleep 500", tree))
    await until((tree / "up").exists)
    [starter] = [
        each for each in psutil.Process().children() if "dugnad.workspace.sandbox.helper.server" in each.cmdline()
    ]
    starter.children(recursive=True)[which].kill()
    assert (await task).code == 137


@pytest.mark.parametrize("forked", [False, True], ids=["alone", "with a fork that holds its pipes"])
async def test_nothing_outlives_the_process_that_asked(tree: Path, folder: Path, forked: bool) -> None:
    script = folder / "asker.py"
    script.write_text(
        "import asyncio, os, signal; from pathlib import Path; from dugnad.workspace.sandbox.sandbox import *\n"
        "async def main():\n"
        f"  sandbox = Sandbox(Probe(level='strict', says='', bwrap=Path({str(found_bwrap())!r})))\n"
        "  await sandbox.start()\n"
        f"  if {forked} and os.fork() == 0:\n"
        f"    Path({str(folder)!r}, 'fork').write_text(str(os.getpid())); signal.pause()\n"
        f"  await sandbox.run('touch up; sleep 500; : {MARK}', tree=Path({str(tree)!r}), seconds=500,\n"
        "    output_bytes_max=1)\n"
        "asyncio.run(main())\n"
    )
    asker = await asyncio.create_subprocess_exec(sys.executable, script)
    await until((tree / "up").exists)
    if forked:
        await until((folder / "fork").exists)
    assert marked()
    asker.kill()
    await asker.wait()
    try:
        await until(marked, holds=False)
        await until(lambda: os.listdir(tree) == ["up"])
    finally:
        if forked:
            os.kill(int((folder / "fork").read_text()), signal.SIGKILL)


async def test_closing_ends_what_still_runs(tree: Path) -> None:
    sandbox = Sandbox(strict_here())
    task = asyncio.create_task(run(sandbox, f"touch up; sleep 500; : {MARK}", tree))
    await until((tree / "up").exists)
    await sandbox.close()
    with pytest.raises(ToolError):
        await task
    assert not marked()


async def test_without_its_own_session_a_command_could_signal_what_started_it(tree: Path) -> None:
    sandbox = Sandbox(strict_here())
    assert (await run(sandbox, "trap '' TERM; kill -TERM 0; echo alive", tree)).output == b"alive\n"
    await sandbox.close()
    sandbox = Sandbox(strict_here(), profile=without("--new-session", filtered=False))
    with pytest.raises(ToolError, match="helper"):
        await run(sandbox, "trap '' TERM; kill -TERM 0; sleep 300", tree)
    await sandbox.close()


@pytest.mark.parametrize("option", ["", "--die-with-parent"])
async def test_without_dying_with_its_parent_a_command_would_outlive_it(tree: Path, option: str) -> None:
    sandbox = Sandbox(strict_here(), profile=without(option or "filter", filtered=True))
    words = direct(sandbox, f"touch up; exec >&- 2>&-; sleep 500; : {MARK}", tree)
    bwrap = await asyncio.create_subprocess_exec(*words, stdout=subprocess.DEVNULL)
    await until((tree / "up").exists)
    bwrap.kill()
    await bwrap.wait()
    if not option:
        await until(marked, holds=False)
        return
    left = marked()
    for pid in left:
        with suppress(ProcessLookupError):  # The first takes the others with it.
            os.kill(pid, signal.SIGKILL)
    assert left
