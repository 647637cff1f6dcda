"""Commands run inside, within bounds; or they do not run."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dugnad.errors import BadInput, ToolError
from dugnad.workspace.sandbox.probe import find_hole
from dugnad.workspace.sandbox.profile import CommandLimits
from dugnad.workspace.sandbox.sandbox import Probe, Sandbox, find_bwrap, how_to_install, probe
from tests.workspace.attempts import BARE, WORD, without
from tests.workspace.running import direct, run, strict_here


async def test_a_command_answers_with_its_code_and_all_it_said_in_order(sandbox: Sandbox, tree: Path) -> None:
    ran = await run(sandbox, "echo one; echo two >&2; echo three; pwd; exit 7", tree)
    assert (ran.code, ran.timed_out, ran.shortened) == (7, False, False)
    assert ran.output.decode() == f"one\ntwo\nthree\n{tree}\n"


async def test_a_command_can_be_interrupted_although_its_host_ignores_that(tree: Path) -> None:
    ignored = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}  # As in a script's background.
    sandbox = Sandbox(strict_here())
    try:
        await sandbox.start()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in ignored:
        ran = await run(sandbox, f"sh -c 'kill -{number} $$; echo still here'; echo $?", tree)
        assert ran.output.decode().strip().endswith(str(128 + number)), ran.output
    await sandbox.close()


async def test_long_output_keeps_its_beginning_and_its_end(sandbox: Sandbox, tree: Path) -> None:
    ran = await run(sandbox, "echo first; seq 100000; echo last", tree, output_bytes_max=1_000)
    assert ran.shortened
    assert ran.output.startswith(b"first\n1\n2\n")
    assert ran.output.endswith(b"100000\nlast\n")
    assert len(ran.output) < 1_100
    assert b"bytes left out" in ran.output


async def test_output_is_heard_as_it_comes_and_up_to_a_bound(tree: Path) -> None:
    heard: list[bytes] = []

    def hear(data: bytes) -> None:
        heard.append(data)
        (tree / "heard").touch()  # The command goes on only when its first word came through.

    sandbox = Sandbox(strict_here(), limits=CommandLimits(streamed_bytes_max=1_000))
    command = "echo one; until test -e heard; do sleep 0.01; done; seq 1000; echo last"
    ran = await sandbox.run(command, tree=tree, seconds=30, output_bytes_max=100, on_output=hear)
    await sandbox.close()
    assert heard[0] == b"one\n"
    assert len(b"".join(heard)) == 1_000
    assert ran.output.endswith(b"last\n")


@pytest.mark.parametrize(
    ("limits", "command", "shows"),
    [
        (CommandLimits(file_bytes_max=1_000_000), "head -c 2000000 /dev/zero > it; stat -c %s it", b"1000000"),
        (CommandLimits(cpu_seconds_max=1), "sh -c 'while :; do :; done'; echo $?", b"137"),
        (
            CommandLimits(memory_bytes_max=200_000_000),
            "head -c 400000000 /dev/zero | tail -c 300000000 >/dev/null; echo ${PIPESTATUS[1]}",
            b"1",
        ),
        (CommandLimits(open_files_max=64), "ulimit -n", b"64"),
        (CommandLimits(scratch_bytes_max=1_000_000), "head -c 9000000 /dev/zero > /tmp/it", b"No space left"),
    ],
)
async def test_a_command_cannot_use_more_than_its_share(
    tree: Path, limits: CommandLimits, command: str, shows: bytes
) -> None:
    sandbox = Sandbox(strict_here(), limits=limits)
    ran = await sandbox.run(command, tree=tree, seconds=60, output_bytes_max=2_000)
    await sandbox.close()
    assert shows in ran.output


async def test_a_command_cannot_start_processes_without_end(tree: Path) -> None:
    if os.getuid() == 0 and not may_make_groups():
        pytest.skip("root is bounded by a cgroup alone, and none can be made here")
    sandbox = Sandbox(strict_here(), limits=CommandLimits(processes_max=30))
    ran = await run(sandbox, "for i in $(seq 60); do sleep 1 & done; echo started", tree, seconds=60)
    await sandbox.close()
    assert b"Resource temporarily unavailable" in ran.output


def may_make_groups() -> bool:
    return any(os.access(f"/sys/fs/cgroup/{each}", os.W_OK) for each in ("pids/pids.max", "pids", "cgroup.procs"))


async def test_only_named_variables_and_no_open_files_get_in(
    tree: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", WORD)
    ran = await sandbox.run(
        "env; cat /proc/*/environ | tr '\\0' '\\n'; ls -l /proc/self/fd /proc/1/fd",
        tree=tree, seconds=30, output_bytes_max=9_999, environment={"COLOUR": "green"},
    )  # fmt: skip
    assert b"COLOUR=green" in ran.output
    assert WORD.encode() not in ran.output
    assert b"PYTHONPATH" not in ran.output
    opened = await run(sandbox, "for it in /proc/self/fd/*; do readlink $it; done", tree)
    assert b"memfd" not in opened.output


async def test_protected_paths_hold_while_a_command_runs_and_are_not_there_before_or_after(
    sandbox: Sandbox, tree: Path
) -> None:
    ran = await run(sandbox, "stat -c %n dugnad.toml .dugnad .git; echo x > dugnad.toml; mkdir .git/hooks", tree)
    assert ran.output.count(b"Read-only file system") == 2
    assert os.listdir(tree) == []
    (tree / "dugnad.toml").write_text("mine")
    (tree / ".dugnad").mkdir()
    await run(sandbox, "rm -rf dugnad.toml .dugnad", tree)
    assert (tree / "dugnad.toml").read_text() == "mine"
    assert (tree / ".dugnad").is_dir()


async def test_a_protected_path_that_is_a_link_fails_the_command(sandbox: Sandbox, tree: Path) -> None:
    (tree / ".git").symlink_to("/")
    with pytest.raises(ToolError, match="symbolic link"):
        await run(sandbox, "touch ran", tree)
    assert not (tree / "ran").exists()


async def test_a_toolchain_can_be_read_and_not_changed(tree: Path, folder: Path) -> None:
    (folder / "tools" / "bin").mkdir(parents=True)
    tool = folder / "tools" / "bin" / "greet"
    tool.write_text("#!/bin/sh\necho hello\n")
    tool.chmod(0o755)
    sandbox = Sandbox(strict_here(), readable=(folder / "tools",))
    ran = await run(sandbox, f"greet; echo x > {tool}", tree)
    await sandbox.close()
    assert ran.output.startswith(b"hello\n")
    assert ran.code != 0
    assert "hello" in tool.read_text()


@pytest.mark.parametrize("body", ["exit 1", 'while [ "$1" != -- ]; do shift; done; shift; "$@"', "kill -9 $$"])
async def test_a_sandbox_that_cannot_be_made_fails_the_command(folder: Path, tree: Path, body: str) -> None:
    broken = folder / "bwrap"
    broken.write_text(f"#!/bin/sh\n{body}\n")
    broken.chmod(0o755)
    sandbox = Sandbox(Probe(level="strict", says="", bwrap=broken))
    with pytest.raises(ToolError, match="could not be made"):
        await run(sandbox, "true", tree)
    await sandbox.close()
    assert (await probe(os.environ["PATH"], outside=Path("/nonexistent"), bwrap=broken)).level == "none"


async def test_an_option_that_bubblewrap_refuses_fails_the_command(tree: Path) -> None:
    sandbox = Sandbox(strict_here(), readable=(Path("/no/such/toolchain"),))
    with pytest.raises(ToolError, match="no/such/toolchain"):
        await run(sandbox, "touch ran", tree)
    await sandbox.close()
    assert os.listdir(tree) == []


async def test_without_a_sandbox_commands_are_refused_unless_a_person_said_otherwise(tree: Path, folder: Path) -> None:
    found = Probe(level="none", says="There is none.", mend="sudo apt-get install bubblewrap")
    with pytest.raises(ToolError, match=r"There is none\. Run: sudo apt-get install bubblewrap"):
        await run(Sandbox(found), "touch ran", tree)
    assert os.listdir(tree) == []
    bare = Sandbox(BARE, unsafe=True)
    assert (await run(bare, f"echo x > {folder}/out; sleep 300 & echo ran", tree)).output == b"ran\n"
    await bare.close()
    assert (folder / "out").exists()


async def test_saying_unsafe_where_there_is_a_sandbox_does_not_leave_it(tree: Path, folder: Path) -> None:
    sandbox = Sandbox(strict_here(), unsafe=True)
    await run(sandbox, f"echo x > {folder}/out", tree)
    await sandbox.close()
    assert not (folder / "out").exists()


async def test_the_probe_finds_the_sandbox_that_is_here() -> None:
    found = await probe(os.environ["PATH"], outside=Path("/nonexistent"))
    assert (found.level, found.mend) == ("strict", ""), found.says


async def test_the_probe_names_the_way_out_that_is_open_and_takes_one_command_for_all() -> None:
    commands = []
    for open_sandbox in (Sandbox(BARE, unsafe=True), Sandbox(strict_here(), readable=(Path(tempfile.gettempdir()),))):

        async def run_one(command: str, sandbox: Sandbox = open_sandbox, **given: Any) -> Any:
            commands.append(command)
            return await sandbox.run(command, **given)

        hole = await find_hole(run_one) or ""
        assert hole.startswith("`cat /")
        assert hole.endswith("/secret` was not stopped")
        await open_sandbox.close()
    assert len(commands) == 2


@pytest.mark.parametrize(("code", "says"), [(100, "did not work"), (108, "proc/net/dev"), (124, "124"), (-9, "-9")])
async def test_a_probe_that_did_not_end_well_found_a_hole(code: int, says: str) -> None:
    async def run_one(command: str, **given: object) -> SimpleNamespace:
        return SimpleNamespace(code=code)

    assert says in (await find_hole(run_one) or "")


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("apt-get", "sudo apt-get install bubblewrap"),
        ("dnf", "sudo dnf install bubblewrap"),
        ("pacman", "sudo pacman -S bubblewrap"),
        ("apk", "sudo apk add bubblewrap"),
    ],
)
async def test_without_bubblewrap_the_probe_names_the_one_command_that_installs_it(
    folder: Path, program: str, command: str
) -> None:
    (folder / program).touch(0o755)
    found = await probe(str(folder), outside=Path("/nonexistent"), beside=folder / "python")
    assert (found.level, found.mend) == ("none", command)
    assert "Linux" in how_to_install(str(folder), system="darwin")


async def test_what_cannot_be_right_is_refused_before_anything_starts(sandbox: Sandbox, tree: Path) -> None:
    for command, place in (("a\0b", tree), ("x" * 200_000, tree), ("true", Path("/")), ("true", tree / "nowhere")):
        with pytest.raises(BadInput):
            await run(sandbox, command, place)
    with pytest.raises(BadInput):
        await sandbox.run("true", tree=tree, seconds=1, output_bytes_max=1, environment={"A=B": "x"})


@pytest.mark.parametrize("option", ["", "--clearenv"])
def test_without_clearing_it_the_environment_would_be_seen(tree: Path, option: str) -> None:
    sandbox = Sandbox(
        strict_here(), profile=without(option, filtered=False) if option else without("filter", filtered=True)
    )
    ran = subprocess.run(direct(sandbox, "env", tree), env={"SECRET_KEY": WORD}, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (WORD.encode() in ran.stdout) == bool(option)


def test_the_copy_beside_the_interpreter_is_found(folder: Path) -> None:
    copy = folder / "bwrap"
    copy.touch()
    assert find_bwrap("", outside=folder, beside=folder / "python") is None
    copy.chmod(copy.stat().st_mode | stat.S_IXUSR)
    assert find_bwrap("", outside=folder, beside=folder / "python") == copy
