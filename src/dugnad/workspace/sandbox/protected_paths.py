"""What of a tree no command may change, also where it is not there yet: what makes others run a program later. And what
no command may talk to: sockets that others have in a tree."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...errors import ToolError
from ...safe_open import OWN
from .profile import Confinement

# What in a tree can make git or dugnad run a program later, outside, or read what lies there; and what stands there
# while it is missing. None: a folder. An empty commondir would be an error to git; one that says "." changes nothing.
_GIT: Mapping[str, str | None] = {
    "hooks": None, "modules": None, "worktrees": None, "dugnad": None, "config": "", "config.worktree": "",
    "commondir": ".", "shallow": "", "info": None,
}  # fmt: skip

_ENTRIES_MAX = 200_000  # Looked at for sockets; what a larger tree has beyond that, the kernel's list has to name.


def sockets_in(policy: Confinement) -> tuple[Path, ...]:
    """The sockets in what a command can see. A file's mode or a read-only mount does not keep it from talking to one.

    A tree of our own begins without any, and nobody but commands works in it; the user's own folder is searched.
    """
    seen = [(each, os.path.realpath(each)) for each in (policy.tree, *policy.readable)]
    found = {above / each.relative_to(real) for each in _bound() for above, real in seen if each.is_relative_to(real)}
    if OWN not in policy.tree.parts:
        found |= set(_searched(policy.tree))
    own = policy.tree / OWN  # It is hidden whole.
    return tuple(sorted(each for each in found if not each.is_relative_to(own) and _is_socket(each)))


def _bound() -> Iterator[Path]:
    """Where the processes of this machine listen, as far as they are in this network and gave a whole path."""
    with suppress(OSError), open("/proc/net/unix", errors="surrogateescape") as file:
        for line in file:
            fields = line.rstrip("\n").split(maxsplit=7)
            if len(fields) == 8 and fields[7].startswith("/"):
                yield Path(os.path.realpath(fields[7]))


def _searched(tree: Path) -> Iterator[Path]:
    left, looked = [str(tree)], 0
    while left and looked < _ENTRIES_MAX:
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                looked += 1
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    yield Path(entry.path)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def protect(policy: Confinement) -> tuple[Confinement, tuple[tuple[str, str | None], ...]]:
    """Keep a tree's dangerous paths from the command, also those that are not there yet; and what to hold them with.

    `.git` itself is a mount of its own where it is a repository: otherwise it could be moved away, with all that is
    protected in it, and made anew.
    """
    tree = policy.tree
    git, own, settings = tree / ".git", tree / ".dugnad", tree / "dugnad.toml"
    holds: dict[Path, str | None] = {own: None, settings: ""}
    read_only = [settings]
    anchored: tuple[Path, ...] = ()
    if os.path.lexists(git / "HEAD"):
        anchored = (git,)
        holds |= {git / name: content for name, content in _GIT.items()}
        read_only += [git / name for name in _GIT]
    else:
        # A file that points to a repository; or none, or another command's placeholder. None of them is to become one.
        read_only.append(git)
        if not git.is_file():
            holds[git] = None
    for each in (git, *holds):
        if each.is_symlink():
            raise ToolError(
                f"{each} is a symbolic link, so the sandbox cannot protect it; put what it points to there."
            )
    policy = replace(policy, read_only=tuple(read_only), anchored=anchored, hidden=(own,))
    return policy, tuple((str(path), content) for path, content in holds.items())
