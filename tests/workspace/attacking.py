"""Files put into a tree; and somebody who renames and links there while others work: a process of its own, so that it
really races."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TARGETS = '("../outside", root + "/../outside", "b/../../outside", "/proc/self/root" + root + "/../outside")'
# Puts links that lead out of the root in the place of a folder, and the folder back, until it is ended.
RENAMING = f"""
import os, sys
root, parent = sys.argv[1], os.getppid()
here, away, link = root + "/a", root + "/hidden", root + "/link"
print("swapping", flush=True)
while os.getppid() == parent:
    for target in {TARGETS}:
        os.rename(here, away)
        os.symlink(target, here)
        os.unlink(here)
        os.rename(away, here)
        os.symlink(target, link)
        os.rename(here, away)
        os.rename(link, here)
        os.unlink(here)
        os.rename(away, here)
"""
# The same in one step, so that there is always a folder or a link; and with files, links to files, and pipes.
EXCHANGING = f"""
import ctypes, os, sys
root, parent = sys.argv[1], os.getppid()
swap = ctypes.CDLL(None).renameat2
os.mkfifo(root + "/pipe")
for number, target in enumerate({TARGETS} + (".git",)):
    os.symlink(target, f"{{root}}/link{{number}}")
    os.symlink(target + "/file", f"{{root}}/to_file{{number}}")
print("swapping", flush=True)
while os.getppid() == parent:
    for number in range(5):
        for here, other in (("a", f"link{{number}}"), ("file", f"to_file{{number}}"), ("alone", "pipe")):
            for _ in range(2):
                swap(-100, f"{{root}}/{{here}}".encode(), -100, f"{{root}}/{{other}}".encode(), 2)
"""


@contextmanager
def attacker(root: Path, script: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-I", "-c", script, str(root)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"swapping\n"
        try:
            yield
            assert process.poll() is None, "the attacker gave up"
        finally:
            process.kill()


def put(root: Path, name: str, text: str | bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
