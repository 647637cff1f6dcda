"""What no command may change in its tree, even if it is not there yet: files that make others run a program later. And
what no command may talk to: sockets that other processes have in the tree."""

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

# What in a .git can make git or dugnad run a program later, outside the sandbox, and the placeholder for each that is
# missing. None: a folder. An empty commondir would be an error to git; one that says "." changes nothing.
_GIT: Mapping[str, str | None] = {
    "hooks": None, "modules": None, "worktrees": None, "dugnad": None, "config": "", "config.worktree": "",
    "commondir": ".", "shallow": "", "info": None,
}  # fmt: skip

_ENTRIES_MAX = 200_000  # How many are searched for sockets; beyond that only the kernel's list names them.


def sockets_in(policy: Confinement) -> tuple[Path, ...]:
    """The sockets that a command can see. Neither a file's mode nor a read-only mount keeps it from talking to one.

    A tree of our own begins without any, and only commands work in it. The user's own folder is searched.
    """
    seen = [(each, os.path.realpath(each)) for each in (policy.tree, *policy.readable)]
    found = {above / each.relative_to(real) for each in _bound() for above, real in seen if each.is_relative_to(real)}
    if OWN not in policy.tree.parts:
        found |= set(_searched(policy.tree))
    own = policy.tree / OWN  # It is hidden whole.
    return tuple(sorted(each for each in found if not each.is_relative_to(own) and _is_socket(each)))


def _bound() -> Iterator[Path]:
    """Where processes of this machine listen, if they are in this network namespace and gave an absolute path."""
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
    with suppress(OSError):
        return stat.S_ISSOCK(os.stat(path).st_mode)
    return False


def protect(policy: Confinement) -> tuple[Confinement, tuple[tuple[str, str | None], ...]]:
    """Keep the dangerous paths of a tree from the command, also those that are missing. Returns the placeholders too.

    `.git` itself is a mount of its own where it is a repository: otherwise it could be moved away, with all that is
    protected in it, and made anew.
    """
    tree = policy.tree
    git, own, settings = tree / ".git", tree / OWN, tree / "dugnad.toml"
    holds: dict[Path, str | None] = {own: None, settings: ""}
    read_only = [settings]
    anchored: tuple[Path, ...] = ()
    if os.path.lexists(git / "HEAD"):
        anchored = (git,)
        holds |= {git / name: content for name, content in _GIT.items()}
        read_only += [git / name for name in _GIT]
    else:
        # A file that points to a repository, or nothing, or another command's placeholder: it must not become one.
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
