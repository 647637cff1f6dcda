"""A host over a repository as a real process, for the proof that the merge queue holds while hosts are killed.

    python -m tests.team.merge_worker URL REPOSITORY NAME...

With REMOTE in the environment, it shares its work through that remote.

Every task "add N" has a program of the repository enter N in files that others enter theirs in, too, and finishes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

from dugnad import Team
from dugnad.models.port import Request
from dugnad.models.scripted import ScriptedModel, Step
from dugnad.settings import Limits, TeamLimits
from dugnad.team import RunPlan
from dugnad.team.team import opened
from tests.team.stage_trees import finish, shell, worktrees

LIMITS = Limits(lease_seconds=2.0, backoff_seconds=0.05, backoff_seconds_max=0.5, attempts_max=60, claims_max=200)
CHECK = "python3 check.py"

# Enters a number in a list that stands in one of three files, where others enter theirs: at its end. Can be run again.
ADD = """
import sys
number = int(sys.argv[1])
open(f"m{number}.py", "w").write(f"value = {number}\\n")
name = f"list{number % 3}.py"
lines = open(name).read().splitlines()
if f"    {number}," not in lines:
    lines.insert(len(lines) - 1, f"    {number},")
open(name, "w").write("\\n".join(lines) + "\\n")
open(f"total{number % 3}.txt", "w").write(f"{sum(int(each.strip(' ,')) for each in lines[1:-1])}\\n")
"""
# Everything that is entered is there, once, and the sum is right: two that merge without a conflict can still break it.
CHECKS = """
import importlib, os, sys
sys.path.insert(0, "."); sys.dont_write_bytecode = True
numbers = [each for name in ("list0", "list1", "list2") for each in importlib.import_module(name).NUMBERS]
assert len(numbers) == len(set(numbers)), "twice"
assert all(importlib.import_module(f"m{each}").value == each for each in numbers)
assert len([each for each in os.listdir(".") if each.startswith("m")]) == len(numbers), "one is not entered"
assert sum(int(open(f"total{each}.txt").read()) for each in range(3)) == sum(numbers), "the sum is wrong"
"""
FILES = {
    "add.py": ADD, "check.py": CHECKS,
    **{f"list{each}.py": "NUMBERS = [\n]\n" for each in range(3)}, **{f"total{each}.txt": "0\n" for each in range(3)},
}  # fmt: skip


def step(request: Request) -> Step:
    number = request.title.split()[1]
    told = str(request.messages[-2:])  # Who was interrupted looks again, and whose tree may lack something.
    if request.turn == 1 or any(each in told for each in ("Interrupted", "Your tree is new", "on another machine")):
        return shell(f"python3 add.py {number}")
    return finish(f"{number} is entered.")


async def main(url: str, root: Path, names: list[str]) -> None:
    limits = TeamLimits(idle_seconds=600, sweep_seconds=0.5)
    plan = RunPlan(url=url, model=ScriptedModel(step), limits=limits, board_limits=LIMITS, seats_max=len(names))
    async with (
        opened(plan) as board,
        worktrees(board, root, CHECK, remote=os.environ.get("REMOTE")) as places,
        Team(replace(plan, workspaces=places), board=board) as team,
    ):
        await places.sweep()
        for name in names:
            await team.board.spawn(name)
        await team.start()
        print(f"started on {os.environ.get('WIRE')}", flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
