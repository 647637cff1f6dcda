"""Without bubblewrap, and only if the user allows it, Landlock and the filter hold what they can; the rest is known."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from dugnad.errors import ToolError
from dugnad.workspace.sandbox.landlock import ABI_LEAST, ABI_SIGNALS, version
from dugnad.workspace.sandbox.sandbox import Probe, Sandbox, probe
from tests.workspace.attempts import ATTEMPTS, ORDINARY, PROTECTED, Attempt, stage
from tests.workspace.running import MARK, marked, run, until

pytestmark = pytest.mark.skipif(version() < ABI_LEAST, reason="this kernel's Landlock is missing or too old")

FOUND = Probe(level="landlock", says="", mend="sudo apt-get install bubblewrap")
# What this level does not hold; docs/operating.md says so.
LEAKS = {
    "read the host's name", "see that a file is there", "change the mode of a file outside",
    "change the date of a file outside",
}  # fmt: skip
SIGNALS = {"signal it", "hold on to it"} if version() < ABI_SIGNALS else set()
USERS = ["root", "an ordinary user"] if os.getuid() == 0 else ["an ordinary user"]


@pytest.fixture
async def landlocked() -> AsyncIterator[Sandbox]:
    made = Sandbox(FOUND)
    yield made
    await made.close()


@pytest.fixture
def below(tree: Path) -> Path:
    (tree / "below").mkdir()
    return tree / "below"


@pytest.mark.parametrize("who", USERS)
async def test_every_attempt_is_stopped_but_for_those_that_are_known(who: str) -> None:
    user = ORDINARY if os.getuid() == 0 and who != "root" else None
    async with stage(user) as outside:
        sandbox = Sandbox(FOUND, user=user)
        attempts = [each for each in ATTEMPTS if outside.applies(each)]
        places = asyncio.Semaphore(4)

        async def one(number: int, attempt: Attempt) -> str:
            async with places:
                here = attempt in PROTECTED or ".dugnad" in attempt.code
                out = await outside.gets_out(attempt, sandbox, number=str(number), below=not here)
                return attempt.name if out else ""

        found = set(await asyncio.gather(*map(one, range(len(attempts)), attempts))) - {""}
        await sandbox.close()
    assert found - SIGNALS == LEAKS
    assert len(attempts) >= (60 if who == "root" else 40)


async def test_ordinary_work_runs_in_what_stands_in_the_tree(landlocked: Sandbox, tree: Path, below: Path) -> None:
    (tree / "file").write_text("old")
    command = (
        "echo new > file; cd below; mkdir sub; echo x > sub/it; mv sub/it it; rm it; ln -s sub link; mkfifo pipe; "
        "echo y > $TMPDIR/it; cat <(echo sub) $TMPDIR/it; /usr/bin/python3 -c 'import tempfile, subprocess as s; "
        'tempfile.TemporaryFile(); print(s.run(["echo", "hi"], start_new_session=True).returncode)\'; git --version'
    )
    ran = await run(landlocked, command, tree)
    assert ran.output.decode().startswith("sub\ny\nhi\n0\ngit version"), ran.output
    assert (ran.code, (tree / "file").read_text()) == (0, "new\n")
    assert sorted(os.listdir(below)) == ["link", "pipe", "sub"]


async def test_nothing_new_is_made_at_the_top_and_what_is_protected_stays(
    landlocked: Sandbox, tree: Path, below: Path
) -> None:
    (tree / ".git" / "objects").mkdir(parents=True)
    (tree / "dugnad.toml").write_text("mine")
    (tree / "tools").mkdir()
    for command in (
        "echo x > new", "mkdir new", "rm -f dugnad.toml && test ! -e dugnad.toml", "echo x > dugnad.toml",
        "mkdir .git/hooks", "echo x > .git/objects/new", "mv below/../dugnad.toml below", "ln dugnad.toml below/it",
        "mkdir .dugnad", "mv below elsewhere", "echo x > tools/new",
    ):  # fmt: skip
        ran = await landlocked.run(command, tree=tree, seconds=30, output_bytes_max=999, readable=(tree / "tools",))
        assert ran.code != 0, command
    assert sorted(os.listdir(tree)) == [".git", "below", "dugnad.toml", "tools"]
    assert (await run(landlocked, "cat dugnad.toml; ls -a .git", tree)).output.startswith(b"mine")


async def test_a_folder_of_its_own_to_write_to_goes_with_the_command(landlocked: Sandbox, tree: Path) -> None:
    ran = await run(landlocked, "echo x > $TMPDIR/it; test $HOME = $TMPDIR && echo $TMPDIR", tree)
    scratch = Path(ran.output.decode().strip())
    assert scratch.name.startswith("dugnad-")
    assert scratch.name not in os.listdir(scratch.parent)


async def test_all_that_a_command_started_ends_with_it(landlocked: Sandbox, tree: Path) -> None:
    ran = await run(landlocked, f"(setsid sh -c 'sleep 500; : {MARK}' &); echo up", tree)
    assert ran.output == b"up\n"
    assert not marked()
    server = await landlocked.open(f"setsid sh -c 'sleep 500; : {MARK}' & echo up; cat", tree=tree)
    assert await server.stdout.readline() == b"up\n"
    await until(marked)  # It bears no mark for the moment in which it becomes another program.
    await server.close()
    assert not marked()


async def test_it_ends_with_the_process_that_asked(tree: Path, below: Path, folder: Path) -> None:
    script = folder / "asker.py"
    script.write_text(
        "import asyncio; from pathlib import Path; from dugnad.workspace.sandbox.sandbox import *\n"
        "async def main():\n"
        "  sandbox = Sandbox(Probe(level='landlock', says=''))\n"
        f"  await sandbox.run('touch below/up; setsid sleep 500; : {MARK}', tree=Path({str(tree)!r}), seconds=500,\n"
        "    output_bytes_max=1)\n"
        "asyncio.run(main())\n"
    )
    asker = await asyncio.create_subprocess_exec(sys.executable, script)
    await until((below / "up").exists)
    assert marked()
    asker.kill()
    await asker.wait()
    await until(marked, holds=False)


async def test_there_are_no_hosts_to_be_reached(landlocked: Sandbox, tree: Path) -> None:
    with pytest.raises(ToolError, match=r"only in the strict sandbox\. Run: sudo apt-get install bubblewrap"):
        await landlocked.run("true", tree=tree, seconds=1, output_bytes_max=1, hosts=("pypi.org",))


async def test_one_that_cannot_be_made_fails_the_command(tree: Path, folder: Path) -> None:
    """A user that may not even enter the tree: the command is not run somewhere else instead."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    os.chmod(tree, 0o700)
    sandbox = Sandbox(FOUND, user=ORDINARY)
    with pytest.raises(ToolError, match="could not be started: Permission denied"):
        await run(sandbox, "echo ran", tree)
    await sandbox.close()


async def test_the_probe_takes_it_only_if_it_is_allowed_and_bubblewrap_is_not_there(folder: Path) -> None:
    (folder / "apt-get").touch(0o755)
    nowhere = folder / "python"
    refused = await probe(str(folder), outside=Path("/nonexistent"), beside=nowhere)
    assert refused.level == "none"
    assert refused.says == "bubblewrap is not installed. Shell tools are refused."
    found = await probe(str(folder), outside=Path("/nonexistent"), beside=nowhere, landlock=True)
    assert (found.level, found.mend) == ("landlock", "sudo apt-get install bubblewrap")
    assert found.says.startswith(
        "bubblewrap is not installed. As your configuration allows, commands run under Landlock"
    )
    assert (await probe(os.environ["PATH"], outside=Path("/nonexistent"), landlock=True)).level == "strict"


async def test_commands_leave_no_process_and_no_file(landlocked: Sandbox, tree: Path) -> None:
    await run(landlocked, "true", tree)
    [starter] = [
        each for each in psutil.Process().children() if "dugnad.workspace.sandbox.helper.server" in each.cmdline()
    ]
    descriptors = starter.num_fds()
    for _ in range(10):
        await asyncio.gather(
            *(run(landlocked, "sleep 300 & (setsid sleep 300 &); echo x > $TMPDIR/it", tree) for _ in "1234")
        )
    assert starter.children(recursive=True) == []
    assert starter.num_fds() == descriptors
    assert not [name for name in os.listdir("/tmp") if name.startswith(f"dugnad-{starter.pid}-")]
