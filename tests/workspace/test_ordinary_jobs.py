"""What people do all day works inside: a sandbox nobody can work in gets switched off."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.proof import every
from tests.workspace.attempts import ORDINARY, Stage, find_python, own, stage
from tests.workspace.running import run

USERS = ["root", "an ordinary user"] if os.getuid() == 0 else ["an ordinary user"]
PYTHON = find_python()
SERVER = """
import http.server, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://localhost:{server.server_port}/").status)
"""
POOL = """
import multiprocessing, concurrent.futures
def square(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool: print(sum(pool.map(square, range(10))))
    lock, queue = multiprocessing.Lock(), multiprocessing.Queue()
    with concurrent.futures.ProcessPoolExecutor(2) as pool: print(sum(pool.map(square, range(10))))
"""
SOCKET_SERVER = """
import socket, sys, threading
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()
threading.Thread(target=lambda: server.accept()[0].sendall(b'heard')).start()
client = socket.socket(socket.AF_UNIX); client.connect(sys.argv[1]); print(client.recv(9).decode())
"""
PAIR = """
import asyncio, multiprocessing
def square(x): return x * x
if __name__ == "__main__":
    asyncio.run(asyncio.sleep(0))
    with multiprocessing.Manager() as shared: print(shared.list([square(2)])[0])
"""
TESTS = "import unittest\nclass It(unittest.TestCase):\n    def test_it(self): self.assertEqual(1 + 1, 2)\n"
# The program it needs, the command, and what it prints last. A machine without the program has nothing to show.
JOBS = {
    "change and look with git": (
        "git", "git status --short; git add -A && git commit -qm second && git log --oneline | wc -l", "2"),
    "branch and merge with git": (
        "git", "git checkout -qb side && echo s > s && git add s && git commit -qm s && git checkout -q main && "
        "git merge -q side && ls s", "s"),
    "make a repository below": ("git", "mkdir sub && cd sub && git init -q && git config a.b c && git config a.b", "c"),
    "compile C": ("cc", "echo 'int main(){return 7;}' > a.c && cc a.c -o a; ./a; echo $?", "7"),
    "link C++ with threads": (
        "c++", "echo '#include <thread>\nint main(){std::thread([]{}).join();}' > a.cc && "
        "c++ -pthread a.cc -o a && ./a; echo $?", "0"),
    "build with make": ("make", "printf 'all:\\n\\t@echo built\\n' > Makefile && make -j4", "built"),
    "make a venv": (PYTHON, f"{PYTHON} -m venv --without-pip v && v/bin/python -c 'print(1)'", "1"),
    "run tests": (PYTHON, f"{PYTHON} -m unittest test_it 2>&1", "OK"),
    "serve on the loopback": (PYTHON, f"{PYTHON} server.py 2>/dev/null", "200"),
    "serve on a socket in the tree": (PYTHON, f"{PYTHON} socket_server.py mine", "heard"),
    "serve on a socket in /tmp": (PYTHON, f"{PYTHON} socket_server.py /tmp/mine", "heard"),
    "talk through a pair of sockets": (PYTHON, f"{PYTHON} pair.py", "4"),
    "use several processes": (PYTHON, f"{PYTHON} pool.py", "285"),
    "use a database file": (
        PYTHON, f"{PYTHON} -c \"import sqlite3; c = sqlite3.connect('a.db'); c.execute('pragma journal_mode=wal'); "
        "c.execute('create table t(a)'); print(c.execute('pragma journal_mode').fetchone()[0])\"", "wal"),
    "run node": ("node", "node -e \"require('child_process').execSync('true'); console.log([1,2].length)\"", "2"),
    "use npm": ("npm", "npm init -y >/dev/null && npm pkg get version", '"1.0.0"'),
    "pack and unpack": (
        "tar", "tar czf /tmp/a.tgz . && mkdir x && tar xzf /tmp/a.tgz -C x && ls x/test_it.py", "x/test_it.py"),
    "find and replace": ("sed", "sed -i s/two/three/ note && find . -name note | xargs grep -c three", "1"),
    "use a terminal": ("script", "script -qec 'tty >/dev/null && echo yes' /dev/null | tr -d '\\r'", "yes"),
    "read the clock and the processors": ("nproc", "test $(nproc) -ge 1 && date +%Y >/dev/null && echo yes", "yes"),
}  # fmt: skip


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> int | None:
    return ORDINARY if os.getuid() == 0 and request.param != "root" else None


@pytest.fixture
async def place(user: int | None) -> AsyncIterator[Stage]:
    async with stage(user) as made:
        yield made


def make_project(tree: Path, user: int | None) -> None:
    tree.mkdir()
    texts = {"server.py": SERVER, "pool.py": POOL, "test_it.py": TESTS, "note": "one\ntwo\n", "pair.py": PAIR}
    for name, text in {**texts, "socket_server.py": SOCKET_SERVER}.items():
        (tree / name).write_text(text)
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"]
    if shutil.which("git"):
        for words in (["init", "-qb", "main"], ["add", "note"], ["commit", "-qm", "first"]):
            subprocess.run(["git", "-C", str(tree), *settings, *words], check=True)
        for name, value in {"user.name": "a", "user.email": "a@b"}.items():
            subprocess.run(["git", "-C", str(tree), "config", name, value], check=True)
    for each in (tree, *tree.rglob("*")):
        own(each, user)


@pytest.mark.parametrize("job", every(3, JOBS))
async def test_an_ordinary_job_runs_inside(place: Stage, job: str) -> None:
    program, command, last = JOBS[job]
    if not any(
        os.access(f"{each}/{program}".replace("//", "/"), os.X_OK) for each in ("/usr/bin", "/usr/local/bin", "/")
    ):
        pytest.skip(f"{program} is not installed where every user finds it")
    tree = place.folder / "project"
    await asyncio.to_thread(make_project, tree, place.user)
    sandbox = place.sandbox()
    ran = await sandbox.run(command, tree=tree, seconds=120, output_bytes_max=10_000)
    await sandbox.close()
    assert (ran.code, ran.output.decode().strip().splitlines()[-1:]) == (0, [last]), ran.output.decode()


async def test_a_worktree_is_read_with_its_repository_beside_it(place: Stage) -> None:
    """The tree's `.git` is a file there; with the repository readable, git can look but not write."""
    project, tree = place.folder / "project", place.folder / "worktree"
    await asyncio.to_thread(make_project, project, place.user)
    add = ["git", "-C", str(project), "-c", "safe.directory=*", "worktree", "add", "-qb", "mine", str(tree)]
    await asyncio.to_thread(subprocess.run, add, check=True)
    for each in (tree, *tree.rglob("*"), *(project / ".git").rglob("*")):
        own(each, place.user)
    sandbox = place.sandbox()
    ran = await sandbox.run(
        "echo more >> note; git diff --stat | tail -1; git log --format=%s; echo x > .git; git add note",
        tree=tree, seconds=60, output_bytes_max=10_000, readable=(project / ".git",),
    )  # fmt: skip
    await sandbox.close()
    said = ran.output.decode()
    assert "1 file changed" in said
    assert "first" in said
    assert said.count("Read-only file system") == 2


async def test_git_does_not_take_a_placeholder_for_a_file_of_the_project(sandbox: Sandbox, tree: Path) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", tree], check=True)
    (tree / "mine").touch()
    ran = await run(sandbox, "stat -c %n dugnad.toml; git add -A; git status --short", tree)
    assert ran.output == b"dugnad.toml\nA  mine\n"
    (tree / "dugnad.toml").write_text("[team]\n")
    await asyncio.to_thread(subprocess.run, ["git", "-C", tree, "add", "dugnad.toml"], check=True)
    assert b"A  dugnad.toml\n" in (await run(sandbox, "git add -A; git status --short", tree)).output
