"""Measures what the sandbox costs a command and a tree costs an attempt, and counts who gets out, in one run.

    python bench/sandbox.py [--json] [--quick]

start_ms_over_bare   the median of running `true` in the strict sandbox less that of asyncio's own subprocess with the
                     same shell, taken in turns, so that what else the machine does falls on both.
attempts             attempts to get out that succeed without the sandbox on this machine, as root and as a user.
escapes              how many of them succeed inside.
worktree_ms          the median of setting up the tree of an attempt in a project of 1,000 files, fence, branch and lock
                     included; bare_worktree_ms is `git worktree add` alone, taken in turns.
git_ms               the median of a commit of ten changed files in such a tree, through the one door to git;
                     bare_git_ms is `git add --all` and `git commit`, taken in turns.
git_attacks          ways to have git run a program that plain git falls for; git_attacks_run: that ours does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from dugnad.workspace.sandbox.sandbox import Sandbox, probe  # noqa: E402
from tests.workspace import git_attacked  # noqa: E402
from tests.workspace.attempts import ATTEMPTS, ORDINARY, stage  # noqa: E402
from tests.workspace.repository import PERSON, git, new_repository, place, trees_of  # noqa: E402

FILES = 1_000


async def time_of(sandbox: Sandbox, tree: Path) -> float:
    began = time.perf_counter()
    ran = await sandbox.run("true", tree=tree, seconds=30, output_bytes_max=1_000)
    assert ran.code == 0
    return (time.perf_counter() - began) * 1_000


async def time_of_bare(tree: Path) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec("/bin/bash", "-c", "true", cwd=tree, stdout=asyncio.subprocess.PIPE)
    await process.communicate()
    return (time.perf_counter() - began) * 1_000


async def measure_start(runs: int) -> dict[str, float]:
    found = await probe(os.environ["PATH"], outside=Path("/nonexistent"))
    if found.level != "strict":
        sys.exit(f"{found.says} {found.mend}")
    tree = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="dugnad-bench-"))
    sandbox = Sandbox(found)
    inside, outside = [], []
    await time_of(sandbox, tree)  # The helper starts with the first.
    for _ in range(runs):
        inside.append(await time_of(sandbox, tree))
        outside.append(await time_of_bare(tree))
    await sandbox.close()
    shutil.rmtree(tree)
    strict_ms, bare_ms = statistics.median(inside), statistics.median(outside)
    return {
        "strict_ms": round(strict_ms, 2),
        "bare_ms": round(bare_ms, 2),
        "start_ms_over_bare": round(strict_ms - bare_ms, 2),
    }


async def count_escapes() -> dict[str, Any]:
    """Each attempt that works bare is made inside; as root also as an ordinary user."""
    attempts: dict[str, int] = {}
    escapes: list[str] = []
    users = {"root": None, "user": ORDINARY} if os.getuid() == 0 else {"user": None}
    for name, user in users.items():
        async with stage(user) as made:
            bare, sandbox = made.sandbox(bare=True), made.sandbox()
            attempts[name] = 0
            for number, attempt in enumerate(ATTEMPTS):
                if made.applies(attempt) and await made.gets_out(attempt, bare, number=f"bare-{number}"):
                    attempts[name] += 1
                    if await made.gets_out(attempt, sandbox, number=str(number)):
                        escapes.append(f"{attempt.name} ({name})")
            await bare.close()
            await sandbox.close()
    return {"attempts": attempts, "escapes": len(escapes), "escaped": escapes}


async def measure_worktree(runs: int) -> dict[str, float]:
    """A tree for an attempt, beside what git needs for it at least. Both are taken away untimed."""
    where = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="dugnad-bench-"))
    files = {f"part{each % 20}/file{each}.py": f"value = {each}\n" * 50 for each in range(FILES)}
    root = await asyncio.to_thread(new_repository, where / "project", files)
    trees = await trees_of(root)
    ours, bare = [], []
    for number in range(1, runs + 2):  # The first is for the caches.
        began = time.perf_counter()
        tree = await trees.begin(place(number))
        ours.append((time.perf_counter() - began) * 1_000)
        await trees.remove(tree)
        await trees.forget(tree.place.mark)
        path = str(where / f"bare{number}")
        began = time.perf_counter()
        add = ("git", "-C", str(root), "worktree", "add", "--quiet", "-b", f"bare{number}", path, "main")
        added = await asyncio.create_subprocess_exec(*add)
        await added.wait()
        bare.append((time.perf_counter() - began) * 1_000)
        await asyncio.to_thread(git, root, "worktree", "remove", "--force", path)
    shutil.rmtree(where)
    ours_ms, bare_ms = statistics.median(ours[1:]), statistics.median(bare[1:])
    return {
        "worktree_ms": round(ours_ms, 1),
        "bare_worktree_ms": round(bare_ms, 1),
        "worktree_over_bare": round(ours_ms / bare_ms, 2),
    }


async def measure_commit(runs: int) -> dict[str, float]:
    """Ten changed files of a thousand become a commit, ours and bare in turns."""
    where = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="dugnad-bench-"))
    files = {f"part{each % 20}/file{each}.py": f"value = {each}\n" * 50 for each in range(FILES)}
    root = await asyncio.to_thread(new_repository, where / "project", files)
    tree = await (await trees_of(root)).begin(place(1))
    await asyncio.to_thread(git, root, "worktree", "add", "--quiet", "-b", "bare", str(where / "bare"), "main")
    ours, bare = [], []
    for number in range(runs + 1):  # The first is for the caches.
        for path in (tree.path, where / "bare"):
            for each in range(10):
                (path / f"part{each}" / f"file{each}.py").write_text(f"value = {number}\n" * 50)
        began = time.perf_counter()
        await tree.commit("Some work", "alice")
        ours.append((time.perf_counter() - began) * 1_000)
        began = time.perf_counter()
        for words in (("add", "--all"), ("commit", "--quiet", "--message", "Some work")):
            ran = await asyncio.create_subprocess_exec("git", *PERSON, *words, cwd=where / "bare")
            await ran.wait()
        bare.append((time.perf_counter() - began) * 1_000)
    tree.let_go()
    shutil.rmtree(where)
    return {
        "git_ms": round(statistics.median(ours[1:]), 1),
        "bare_git_ms": round(statistics.median(bare[1:]), 1),
    }


async def count_git_attacks() -> dict[str, Any]:
    where = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="dugnad-bench-"))
    attacks, ran = await git_attacked.count(where)
    shutil.rmtree(where)
    return {"git_attacks": attacks, "git_attacks_run": len(ran), "git_attacked": ran}


async def measure(*, quick: bool) -> dict[str, Any]:
    started = await measure_start(20 if quick else 200)
    trees = {**await measure_worktree(5 if quick else 30), **await measure_commit(5 if quick else 30)}
    return {**started, **trees, **await count_git_attacks(), **await count_escapes()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer starts")
    given = parser.parse_args()
    found = asyncio.run(measure(quick=given.quick))
    if given.json:
        print(json.dumps(found))
        return
    print(f"start: {found['start_ms_over_bare']} ms over bare ({found['strict_ms']} against {found['bare_ms']})")
    ratio = f"{found['worktree_over_bare']} times bare git's {found['bare_worktree_ms']}"
    print(f"worktree: {found['worktree_ms']} ms for {FILES:,} files, {ratio}")
    print(f"commit: {found['git_ms']} ms for ten files, bare git's {found['bare_git_ms']}")
    print(f"git attacks: {found['git_attacks']}, of which ours ran {found['git_attacks_run']}")
    for user, count in found["attempts"].items():
        print(f"attempts as {user}: {count}")
    print(f"escapes: {found['escapes']} {', '.join(found['escaped'])}")


if __name__ == "__main__":
    main()
