"""`dugnad demo`: three teammates build a small program, and one of their hosts is killed meanwhile.

The model is scripted (demo.yaml), since the demo works offline. Everything else is real: the board, two host processes,
the files, the tests, the commits, the kill -9. The tools run only what the script wrote, so they need no sandbox.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from ..config.agents import project_here
from ..errors import BadInput
from ..models import ScriptedModel
from ..models.port import Price
from ..models.scripted import read_script
from ..settings import Limits, TeamLimits
from ..team import Team
from ..tools.context import Context
from ..tools.tool import Tool, tool
from ..types import HUMAN, Budget, Task
from ..view.summary import report_page, report_shape
from ..workspace.git.command import GitCall, ask
from ..workspace.git.git import ENVIRONMENT
from ..workspace.programs import find_program
from .command import answer, show
from .conduct import showing
from .signals import stopping

GOAL = "Build slug, which makes titles into web addresses"
TRIED = "Blåbær på dugnad"
_PRICE = Price(input=3.0, output=15.0)
_ABOUT = f"""\
dugnad demo: offline, with a scripted model. Its replies come from a file (demo.yaml); everything else is real.

  The goal   {GOAL}
  The team   alice and bob (coder) on this host; carol (tester) on a second host, which will be killed
  The cap    12 task runs, $0.50 at made-up prices
"""


def play(keep: str | None, *, as_json: bool, web: bool = False) -> int:
    """Play the demo in an empty folder. Returns the exit code."""
    if _program() is None:
        raise BadInput("The demo builds in a git project, and there is no git; install it first (apt install git).")
    try:
        folder = _empty_folder(keep)
    except OSError as trouble:
        raise BadInput(f"The demo cannot build in {keep or tempfile.gettempdir()}: {trouble.strerror}.") from None
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "add", ".gitignore")
    _git(folder, "commit", "--quiet", "--message", "Begin")
    if not as_json:
        show(_ABOUT)
    with _second_host(folder) as second:
        return asyncio.run(_play(folder, second, as_json=as_json, web=web))


def _empty_folder(keep: str | None) -> Path:
    folder = Path(keep).resolve() if keep else Path(tempfile.mkdtemp(prefix="dugnad-demo-"))
    if keep and folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; name an empty folder, or one that does not exist.")
    (folder / ".dugnad").mkdir(parents=True)
    (folder / ".gitignore").write_text(".dugnad/\n__pycache__/\n")
    return folder


async def _play(folder: Path, second: subprocess.Popen[bytes], *, as_json: bool, web: bool) -> int:
    async with AsyncExitStack() as stack:
        team = await stack.enter_async_context(_team(folder))
        page = None
        if web:
            from .demo_web import demo_page

            page = await stack.enter_async_context(demo_page(team.board, folder))
            if not await page.opened():
                return 130
        code = await _play_with(team, folder, second, as_json=as_json)
        if page is not None and code != 130:
            await page.stays()
        return code


async def _play_with(team: Team, folder: Path, second: subprocess.Popen[bytes], *, as_json: bool) -> int:
    for name in ("alice", "bob"):
        await team.spawn(name, role="coder")
    goal = await team.board.put(GOAL, role="coder", budget=Budget(tasks=12, dollars=0.5))
    story = Story(team, second)
    view = showing(team, [goal.id], after=0, quiet=as_json, says=story.says)
    async with stopping("the demo ended") as stop, view:
        killing = asyncio.create_task(story.kill_when_carol_is_at_work())
        await team.work([goal.id], stop=stop)
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
        await team.leave("the demo ended")
    end = await team.report([goal.id], interrupted=bool(stop))
    works = await asyncio.to_thread(_works, folder) if not end.interrupted else None
    shape = {**report_shape(end), "folder": str(folder), "killed": story.killed, "works": works}
    answer(as_json, shape, lambda: report_page(end))
    if not as_json:
        show(_ending(folder, works) if works else f"\nThe unfinished work is in {folder}.")
    return end.exit_code or int(not (works and works["tests"]))


class Story:
    """Kills carol's host while she works, and tells the watcher."""

    def __init__(self, team: Team, host: subprocess.Popen[bytes]) -> None:
        self.team, self.host, self.killed = team, host, 0

    async def kill_when_carol_is_at_work(self) -> None:
        async for event in self.team.events():
            if event.actor == "carol" and event.kind == "turn" and event.data.get("turn_kind") == "tool":
                self.host.send_signal(signal.SIGKILL)
                self.host.wait()
                self.killed = self.host.pid
                return

    def says(self) -> str:
        """For the live view, or for a line among the events in a pipe."""
        died = f"kill -9 {self.killed}: carol's host died in the middle of her task"
        if not sys.stdout.isatty():
            return f"          >>> {died}" if self.killed else ""
        waits = "carol works on a second host, another process, which will soon be killed."
        return f"{died}; watch how it continues." if self.killed else waits


@contextmanager
def _second_host(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A second process with carol. It is ready before the demo begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dugnad.cli.demo", str(folder)], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _team(folder: Path, *, seats_max: int = 3) -> Team:
    with as_file(files("dugnad.cli").joinpath("demo.yaml")) as path:
        script = read_script(path.read_text())
    return Team.open(
        f"sqlite:///{folder}/.dugnad/board.db",
        model=ScriptedModel(script, name="scripted:demo", price=_PRICE),
        name="demo",
        seats_max=seats_max,
        tools=demo_tools(folder),
        check=lambda task: _check(folder, task),
        limits=TeamLimits(sweep_seconds=1.0, stop_seconds=3.0, idle_seconds=30.0),
        board_limits=Limits(lease_seconds=3.0, backoff_seconds=0.5),
    )


async def _host_carol(folder: Path) -> None:
    async with _team(folder, seats_max=1) as team, stopping("its host was stopped") as stop:
        await team.spawn("carol", role="tester")
        host = await team.start()
        while "carol" not in host.workers:
            await host.wait_for_move(0.1)
        print("ready", flush=True)
        # Nobody writes to standard input; it closes when the parent process ends, in any way.
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.say, "the demo ended")
        await stop.said.wait()


# The tools: real files, real tests, real commits.


def demo_tools(folder: Path) -> tuple[Tool, ...]:
    @tool(keyed=True)
    def write_file(path: str, text: str) -> str:
        """Write a file of the project."""
        target = folder / Path(path).name
        half = target.with_name(f".{target.name}.{os.getpid()}")
        half.write_text(text)
        half.replace(target)
        return f"Wrote {target.name}, {len(text.splitlines())} lines."

    @tool(safe=True, keyed=True)
    def run_tests() -> str:
        """Run all the tests of the project."""
        ran = _python(folder, "-m", "unittest")
        return f"{'green' if ran.returncode == 0 else 'red'}\n{ran.stderr}{ran.stdout}"

    @tool(safe=True, keyed=True)
    def try_out(title: str) -> str:
        """See what slugify() makes of a title."""
        return _python(folder, "slug.py", title).stdout

    @tool(keyed=True)
    def commit(context: Context, message: str, paths: list[str]) -> str:
        """Commit these files."""
        with (folder / ".dugnad" / "commit.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _git(folder, "add", "--", *paths)
            words = ["commit", "--quiet", "--message", message, "--", *paths]
            done = _git(folder, *words, author=context.teammate.name)
        return "Committed." if done[0] == 0 else "There was nothing to commit."

    return (write_file, run_tests, try_out, commit)


async def _check(folder: Path, task: Task) -> str | None:
    """Run the check of a task. One that a person added on the page is not run: there is no sandbox here."""
    if task.put_by == HUMAN:
        return "The demo has no sandbox, so it runs only the checks of its script."
    command = (task.check or "").replace("python ", f"{sys.executable} ", 1)
    ran = await asyncio.to_thread(
        subprocess.run, command, shell=True, cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    return None if ran.returncode == 0 else f"{ran.stdout}{ran.stderr}"


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )


def _program() -> str | None:
    return find_program("git", os.environ.get("PATH", os.defpath), outside=project_here(os.environ))


def _git(folder: Path, *arguments: str, author: str = "dugnad") -> tuple[int, str]:
    """The exit code and the output of a git command. It blocks, so do not call it in an event loop."""
    who = {f"GIT_{each}_{what}": author if what == "NAME" else f"{author}@dugnad.invalid"
           for each in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
    where = {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    call = GitCall(
        argv=(_program() or "git", "-c", "maintenance.auto=false", *arguments), folder=folder,
        environment={**ENVIRONMENT, **who, **where}, writable=(folder,),
    )  # fmt: skip
    code, said, _ = asyncio.run(ask(call, seconds=30.0))
    return code, said.decode()


# The end.


def _works(folder: Path) -> dict[str, Any]:
    """Try out the program that they built."""
    tests = _python(folder, "-m", "unittest")
    return {
        "says": _python(folder, "slug.py", TRIED).stdout.strip(),
        "tests": tests.returncode == 0,
        "ran": tests.stderr.strip().splitlines()[-3] if tests.stderr.strip() else "",
        "commits": _git(folder, "log", "--format=%h %an: %s", "--reverse")[1].splitlines()[1:],
    }


def _ending(folder: Path, works: dict[str, Any]) -> str:
    commits = "\n".join(f"    {each}" for each in works["commits"])
    command = "dugnad" if shutil.which("dugnad") else os.path.abspath(sys.argv[0])
    return f"""
What they built works:
    $ python slug.py "{TRIED}"
    {works["says"]}
    $ python -m unittest
    {works["ran"]} {"OK" if works["tests"] else "FAILED"}
    $ git log
{commits}

Where to look next:
    cd {shlex.quote(str(folder))}
    {command} tasks                  the tasks, and who did them
    {command} show 4 --transcript    carol's task: two hosts, one transcript
    {command} log                    everything that happened, line by line
    {command} budget                 what was spent of the budget
With your own model, in your own project: dugnad doctor, then dugnad run "GOAL" --dollars 2
"""


if __name__ == "__main__":
    asyncio.run(_host_carol(Path(sys.argv[1])))
