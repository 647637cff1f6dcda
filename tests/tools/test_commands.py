"""`bash` as a teammate uses it: what its model is told, what is on disk, what is shown, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from dugnad.board import Board
from dugnad.errors import ToolError
from dugnad.models import ScriptedModel
from dugnad.settings import AgentLimits, ShellLimits
from dugnad.tools.context import Context, Piece
from dugnad.tools.shell.outputs import Echo, Log, Outputs, last_line
from dugnad.tools.tool import tool
from dugnad.types import Budget, Done
from dugnad.workspace.sandbox.sandbox import Probe, Sandbox
from simulation.shell import command_tools
from tests.agent.stage_agent import END, TITLE, all_told, call, calls, gave, last_results, results, set_stage
from tests.agent.stage_commands import attempt, small, until_true
from tests.team.stage_team import hosting, until_status
from tests.workspace.running import MARK, marked

WAITS = "until test -e go; do sleep 0.01; done"


async def test_a_short_output_is_shown_as_it_is_and_lies_on_disk(board: Board, sandbox: Sandbox, tree: Path) -> None:
    steps = [calls(("bash", {"command": "echo hello"}), ("bash", {"command": "echo no >&2; exit 3"})), END]
    async with attempt(board, sandbox, tree, steps) as it:
        assert await it.work() == Done("built")
        assert it.results == ["[exit code 0]\nhello", "[exit code 3]\nno"]
        assert (it.log("1.1.0"), it.log("1.1.1")) == (b"hello\n", b"no\n")
        assert (it.logs / "1.1.0.log").stat().st_mode & 0o777 == 0o600


async def test_a_long_output_is_shown_in_short_and_read_on_in_pieces(
    board: Board, sandbox: Sandbox, tree: Path
) -> None:
    long = "python3 -c \"[print(f'{n} åäö') for n in range(60000)]\""
    reading = [call("read_output", output="1.1.0", start=start) for start in (0, 12_000, 700_000)]
    async with attempt(board, sandbox, tree, [call("bash", command=long), *reading, END]) as it:
        await it.work()
        whole = it.log("1.1.0").decode()
        assert whole == "".join(f"{n} åäö\n" for n in range(60_000))
        shown = gave(it.stage.model.asked[1])
        assert shown.startswith("[exit code 0, output shortened: the whole is kept in 1.1.0.log]\n0 åäö\n1 åäö\n")
        assert shown.endswith("59999 åäö")
        assert len(shown) < 16_000
        found = re.search(r"\[… ([0-9,]+) bytes left out; read_output\(output='1.1.0', start=(\d+)\) shows", shown)
        assert found is not None
        start, left_out = int(found[2]), int(found[1].replace(",", ""))
        tail = shown.partition("shows them …]\n")[2] + "\n"  # The last line's end is not shown.
        assert len((whole[:start] + tail).encode()) + left_out == len(whole.encode())
        pages = [gave(it.stage.model.asked[turn]) for turn in (2, 3, 4)]
        assert pages[0] == whole[:12_000] + "\n[… read on with start=12000 …]"
        assert pages[1] == whole[12_000:24_000] + "\n[… read on with start=24000 …]"
        assert pages[2] == "Error: Output 1.1.0 has 588,890 characters; choose a start below that."


async def test_a_range_of_an_output_can_be_asked_for(board: Board, sandbox: Sandbox, tree: Path) -> None:
    steps = [
        call("bash", command="seq 10"),
        calls(
            ("read_output", {"output": "1.1.0", "start": 2, "characters": 5}),
            ("read_output", {"output": "1.2", "start": 1, "characters": 9}),
            ("read_output", {"output": "1.1.9"}),
            ("read_output", {"output": "../1/1.1.0"}),
        ),
        END,
    ]
    async with attempt(board, sandbox, tree, steps) as it:
        await it.work()
        assert it.results[:2] == ["2\n3\n4\n[… read on with start=7 …]", "exit code\n[… read on with start=10 …]"]
        gone = "it may be gone, or on another machine."
        assert it.results[2:] == [f"Error: There is no output {name!r}; {gone}" for name in ("1.1.9", "../1/1.1.0")]


@pytest.mark.parametrize(("bytes_max", "streamed"), [(10_000, None), (200_000, None), (10_000_000, 20_000)])
async def test_what_is_kept_of_one_command_is_bounded_and_has_its_end(
    board: Board, sandbox: Sandbox, tree: Path, bytes_max: int, streamed: int | None
) -> None:
    if streamed:
        sandbox.limits = type(sandbox.limits)(streamed_bytes_max=streamed)
    steps = [call("bash", command="seq 200000"), END]
    async with attempt(board, sandbox, tree, steps, commands=small(output_bytes_max=bytes_max)) as it:
        await it.work()
        kept = it.log("1.1.0")
        assert kept.startswith(b"1\n2\n3\n")
        assert kept.endswith(b"199999\n200000\n")
        assert b" left out: more than is kept ...]\n" in kept
        assert len(kept) <= bytes_max + 100


async def test_of_a_tasks_outputs_the_oldest_give_way(board: Board, sandbox: Sandbox, tree: Path) -> None:
    steps = [*[call("bash", command="head -c 4000 /dev/zero | tr '\\0' x")] * 4, END]
    bounds = small(output_bytes_max=5_000, outputs_bytes_max=9_500)
    async with attempt(board, sandbox, tree, steps, commands=bounds) as it:
        await it.work()
        assert sorted(os.listdir(it.logs)) == ["1.5.0.log", "1.7.0.log"]


async def test_where_nothing_can_be_kept_the_command_runs_and_that_is_told(
    board: Board, sandbox: Sandbox, tree: Path
) -> None:
    (tree.parent / "outputs").write_text("a file where a folder should be")
    steps = [calls(("bash", {"command": "echo hello"}), ("bash", {"command": "seq 100000"})), END]
    async with attempt(board, sandbox, tree, steps) as it:
        await it.work()
        assert it.results[0] == "[exit code 0]\nhello\n[Its whole output could not be kept: Not a directory.]"
        assert it.results[1].startswith("[exit code 0, output shortened]\n1\n2\n")
        assert it.results[1].endswith("100000\n[Its whole output could not be kept: Not a directory.]")


async def test_commands_do_not_see_what_is_kept(board: Board, sandbox: Sandbox, tree: Path) -> None:
    steps = [call("bash", command="echo secret"), call("bash", command="find .dugnad -type f; cat .dugnad/*/*/*"), END]
    async with attempt(board, sandbox, tree, steps, commands={"outputs": tree / ".dugnad" / "output"}) as it:
        await it.work()
        assert (tree / ".dugnad/output/1/1.1.0.log").read_text() == "secret\n"
        assert "secret" not in it.results[0]
        assert "No such file" in it.results[0]


async def test_a_command_may_take_longer_than_other_tools_if_it_asks(
    board: Board, sandbox: Sandbox, tree: Path
) -> None:
    steps = [call("bash", command="sleep 0.5; echo late", seconds=30), END]
    async with attempt(board, sandbox, tree, steps, limits=AgentLimits(tool_seconds_max=0.1)) as it:
        await it.work()
        assert it.results == ["[exit code 0]\nlate"]


@pytest.mark.parametrize(
    ("cap", "asked", "reserved"),
    [(10_000, 1_000, 1_010_000), (10_000, 9_999_999, 1_810_000), (1_000, 1_800, 500_000), (10_000, None, 130_000)],
)
async def test_what_a_command_may_take_is_set_aside_and_what_it_took_is_paid(
    board: Board, sandbox: Sandbox, tree: Path, cap: int, asked: float | None, reserved: int
) -> None:
    steps = [call("bash", command=f"touch begun; {WAITS}", **({"seconds": asked} if asked else {})), END]
    async with attempt(board, sandbox, tree, steps, begin={"budget": Budget(seconds=cap)}) as it:
        work = asyncio.create_task(it.work())
        await until_true((tree / "begun").exists)
        spending = await board.budget(1)
        (tree / "go").touch()
        assert await work == Done("built")
        # Of what the first call of the model left: a few milliseconds of 1,000 seconds.
        assert reserved - 20_000 <= spending.reserved.milliseconds <= reserved
        assert (await board.budget(1)).reserved.milliseconds == 0
        assert 0 < (await board.budget(1)).spent.milliseconds < 60_000


async def test_a_command_that_the_goal_has_no_time_for_is_ended_with_what_it_said(
    board: Board, sandbox: Sandbox, tree: Path
) -> None:
    steps = [call("bash", command="echo begun; sleep 1000", seconds=1_000), END]
    limits = AgentLimits(tool_seconds_max=0.1, model_seconds_max=0.5)
    async with attempt(board, sandbox, tree, steps, begin={"budget": Budget(seconds=6)}, limits=limits) as it:
        await it.work()
        (text,) = it.results
        assert re.fullmatch(r"\[ended after [0-9.]+ s: it took too long\]\nbegun", text)


async def test_its_last_line_is_shown_while_it_runs(board: Board, sandbox: Sandbox, tree: Path) -> None:
    said = (
        "printf '\\033[1mbegin\\033[0m\\n'; until test -e more; do sleep 0.01; done; printf '10%%\\r\\033]0;x\\a20%%'"
    )
    async with attempt(board, sandbox, tree, [call("bash", command=f"{said}; {WAITS}"), END]) as it:
        work = asyncio.create_task(it.work())
        agent = it.stage.agent
        await until_true(lambda: agent.doing.endswith("\nbegin"))
        assert agent.doing.startswith("bash: printf")
        since = agent.doing_since
        (tree / "more").touch()
        await until_true(lambda: agent.doing.endswith("\n20%"))
        assert agent.doing_since == since
        (tree / "go").touch()
        await work
        assert agent.doing == ""


async def test_of_a_long_line_the_end_is_shown_and_nothing_that_a_terminal_obeys() -> None:
    assert last_line(b"one\ntwo\n\n  \n") == "two"
    assert last_line(b"x" * 500, 10) == "…xxxxxxxxx"
    assert last_line(b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00\xc2\x9b\xff") == "red \ufffd\ufffd\ufffd"
    assert last_line(b"") == ""
    assert "\x1b" not in last_line(b"\x1b[31\x1b\x1b[")


async def test_a_call_that_is_cancelled_returns_when_its_command_is_gone(
    board: Board, sandbox: Sandbox, tree: Path
) -> None:
    script = f"bash -c 'exec -a {MARK} sleep 1000' & setsid bash -c 'exec -a {MARK} sleep 1000' & echo begun; wait"
    async with attempt(board, sandbox, tree, [call("bash", command=script), END]) as it:
        work = asyncio.create_task(it.work())
        await until_true(lambda: len(marked()) >= 2 and it.stage.agent.doing.endswith("begun"))
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert not marked()
        assert it.log("1.1.0") == b"begun\n"


async def test_a_command_over_its_time_leaves_nothing(board: Board, sandbox: Sandbox, tree: Path) -> None:
    script = f"echo begun; bash -c 'exec -a {MARK} sleep 1000' & wait"
    async with attempt(board, sandbox, tree, [call("bash", command=script, seconds=0.1), END]) as it:
        await it.work()
        assert not marked()
        assert re.fullmatch(r"\[ended after [0-9.]+ s: it took too long\]\nbegun", it.results[0])


async def test_without_a_sandbox_nothing_runs_and_that_is_told(board: Board, tree: Path) -> None:
    none = Sandbox(Probe(level="none", says="There is no sandbox here.", mend="install it"))
    steps = [calls(*(("bash", {"command": "touch made", "background": each}) for each in (False, True))), END]
    async with attempt(board, none, tree, steps) as it:
        await it.work()
        assert it.results == ["Error: There is no sandbox here. Run: install it"] * 2
        assert not (tree / "made").exists()
        assert await board.inbox("alice") == []


async def test_a_teammate_without_an_attempt_has_bash_alone(board: Board, sandbox: Sandbox, tree: Path) -> None:
    tools = command_tools(sandbox, tree)
    assert [each.name for each in tools] == ["bash"]
    stage = await set_stage(
        board, [calls(("bash", {"command": "echo $((6 * 7))"}), ("bash", {"command": "seq 20000"})), END], tools=tools
    )
    await stage.run()
    first, second = last_results(stage.model)
    assert first == "[exit code 0]\n42"
    assert "read_output(output='1.3') shows them" in second


def test_a_disk_that_fills_up_is_told_and_no_more_is_written(folder: Path) -> None:
    log = Log(folder, "full.log", 10_000)
    assert log._fd is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._fd)
    os.close(full)
    for _ in range(3):
        log.add(b"x" * 1_000)
    log.close()
    assert (log.trouble, log.heard) == ("No space left on device", 3_000)


def test_an_output_is_read_while_it_is_written(folder: Path) -> None:
    outputs = Outputs(folder / "1", ShellLimits())
    log = outputs.log_of_call("t1.e2.3.4")
    with pytest.raises(ToolError, match=r"Output 2\.3\.4 is empty\."):
        outputs.piece("2.3.4", 0, 10)
    log.add("å".encode()[:1])
    log.add("å".encode()[1:] + b"bc")
    assert outputs.piece("2.3.4", 0, 2) == Piece("åb", True)
    assert outputs.piece("2.3.4", 1, 2) == Piece("bc", False)
    outputs.close(log)
    again = outputs.log_of_call("t1.e2.3.4")
    assert again.output == "2.3.4-1"
    outputs.close(again)


def test_what_is_no_name_of_an_output_is_not_opened(folder: Path) -> None:
    (folder / "secret.log").write_text("secret")
    os.symlink(folder / "secret.log", folder / "link.log")
    outputs = Outputs(folder / "1", ShellLimits())
    outputs.folder.mkdir()
    os.symlink(folder / "secret.log", outputs.folder / "b1.log")
    for name in ("../secret", "b1", "", "/etc/passwd", "..", "a" * 5_000, "b\0"):
        assert outputs.piece(name, 0, 10) is None


async def test_commands_see_the_environment_and_the_toolchains_they_are_given(
    board: Board, sandbox: Sandbox, tree: Path
) -> None:
    (tree.parent / "tool").write_text("a toolchain")
    with_both = {"readable": (tree.parent / "tool",), "environment": {"WORD": "given"}}
    steps = [
        calls(
            ("bash", {"command": f"echo $WORD; cat {tree.parent / 'tool'}"}),
            ("bash", {"command": "echo $WORD again", "background": True}),
            ("jobs", {"wait": "b1"}),
        ),
        END,
    ]
    async with attempt(board, sandbox, tree, steps, commands=with_both) as it:
        await it.work()
        said = all_told(it.stage.model.asked[-1])
    assert "given\na toolchain" in said
    assert "given again" in said


async def test_a_command_whose_task_is_taken_away_is_ended(board: Board, sandbox: Sandbox, tree: Path) -> None:
    await board.spawn("alice")
    task = await board.put(TITLE)
    script = f"bash -c 'exec -a {MARK} sleep 1000' & setsid bash -c 'exec -a {MARK} sleep 1000' & wait"
    model = ScriptedModel({TITLE: [call("bash", command=script), END]})
    async with hosting(board, model, tools=command_tools(sandbox, tree), limits={"cancel_seconds": 10.0}):
        await until_true(lambda: len(marked()) >= 2)
        await board.cancel(task.id)
        await until_true(lambda: not marked())
        await until_status(board, "alice", "idle")


async def test_a_tool_of_ones_own_can_name_its_time(board: Board) -> None:
    @tool(seconds=30)
    async def slow(context: Context) -> str:
        """Take a while."""
        await asyncio.sleep(0.3)
        return f"within {context.seconds:g}"

    assert await results(board, ("slow", {}), tools=[slow], limits=AgentLimits(tool_seconds_max=0.1)) == ["within 30"]


def test_outputs_of_all_tasks_together_are_bounded_too(folder: Path) -> None:
    limits = ShellLimits(output_bytes_max=1_000, all_outputs_bytes_max=2_500)
    (folder / "outputs" / "0").mkdir(parents=True)
    (folder / "outputs" / "0" / "mine.txt").write_text("x" * 10_000)  # Not of ours.
    for task in range(1, 6):
        outputs = Outputs(folder / "outputs" / str(task), limits)
        log = outputs.log_of_call(f"t{task}.e1.1.0")
        log.add(b"x" * 900)
        outputs.close(log)
        os.utime(outputs.folder / log.name, (task, task))
    assert sorted(path.parent.name for path in (folder / "outputs").glob("*/*.log")) == ["4", "5"]
    assert (folder / "outputs" / "0" / "mine.txt").exists()


def test_an_output_that_is_still_written_does_not_give_way(folder: Path) -> None:
    outputs = Outputs(folder / "outputs" / "1", ShellLimits(output_bytes_max=5_000, outputs_bytes_max=9_500))
    _, running = outputs.log_of_job(1)
    running.add(b"x" * 2_000)
    os.utime(outputs.folder / running.name, (1, 1))  # The oldest of all.
    for number in range(4):
        log = outputs.log_of_call(f"t1.e1.1.{number}")
        log.add(b"y" * 4_000)
        outputs.close(log)
    assert outputs.has("b1")
    running.add(b"and the end")
    outputs.close(running)
    assert (outputs.folder / "b1.log").read_bytes().endswith(b"and the end")


async def test_a_flood_of_lines_is_shown_a_few_times_a_second_and_its_last_line_always() -> None:
    said: list[str] = []
    echo = Echo(said.append)
    for number in range(1_000):
        echo.hear(b"line %d\n" % number)
    assert said == ["line 0"]
    await until_true(lambda: len(said) > 1)
    assert said == ["line 0", "line 999"]
    echo.hear(b"never shown\n")
    echo.close()
    assert len(said) == 2
