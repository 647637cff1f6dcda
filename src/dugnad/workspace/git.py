"""Asking git: one repository, never by discovery, and never anything that the tree or its settings would run.

Every call names the repository and the tree outright. Hooks, filters, monitors, pagers, editors, signing and merge
programs are off, whatever the repository's settings say; the user's and the system's settings are not read at all.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..clock import wall_ms
from ..errors import ToolError

_SECONDS_MAX = 300.0
_ENDING_SECONDS = 10.0
_OFF: Mapping[str, str] = {
    "core.hooksPath": "/dev/null", "core.fsmonitor": "false", "core.untrackedCache": "false", "core.pager": "cat",
    "core.editor": "false", "core.sshCommand": "false", "core.askPass": "", "core.attributesFile": "/dev/null",
    "credential.helper": "", "diff.external": "", "commit.gpgSign": "false", "merge.renames": "true",
    "merge.union.driver": "false", "submodule.recurse": "false", "gc.auto": "0", "maintenance.auto": "false",
    "advice.detachedHead": "false", "core.quotePath": "false", "checkout.workers": "2",
    "core.fsync": "committed,reference", "core.fsyncMethod": "batch", "core.sparseCheckout": "false",
    "index.sparse": "false", "add.ignoreErrors": "false", "log.showSignature": "false", "trailer.separators": ":",
    "color.ui": "false", "i18n.commitEncoding": "UTF-8", "i18n.logOutputEncoding": "UTF-8",
}  # fmt: skip
# What no project wants in its history, and what a teammate's commands leave behind where nobody wrote a .gitignore.
_NEVER = (
    "__pycache__/", "*.py[co]", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".tox/", ".venv/",
    "*.egg-info/", "node_modules/", ".DS_Store", "*.swp", "core.[0-9]*",
)  # fmt: skip
_VERSION = re.compile(rb"git version (\d+)\.(\d+)")
_NEEDED = (2, 38)  # From here on a merge needs no tree.
_PARTIAL = (
    "The repository is a partial clone, and something is needed that it has not fetched: `git fetch --refetch "
    "--no-filter` brings it."
)
_RUNS = re.compile(r"^(filter|merge)\.(.+)\.(clean|smudge|process|driver)$", re.IGNORECASE)


class GitTrouble(ToolError):
    """Git could not do what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    code: int
    text: str
    errors: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """One repository. `directory` is what all its trees share; `prefix` is where in a tree the project lies."""

    program: str
    directory: Path
    top: Path
    prefix: Path
    off: Mapping[str, str] = field(default_factory=lambda: _OFF)

    @classmethod
    async def find(cls, root: Path, *, path: str) -> Git | None:
        """The repository a project lies in, if it does, and if git is there to be asked."""
        program = shutil.which("git", path=path)
        top = _top(root)
        if program is None or top is None:
            return None
        found = cls(program=program, directory=top / ".git", top=top, prefix=root.relative_to(top))
        version = _VERSION.match((await found.run("--version")).text.encode())
        if version is None or (int(version[1]), int(version[2])) < _NEEDED:
            raise GitTrouble("Worktrees need git 2.38 or newer; update git, or use --in-place.")
        # A file there means that the project is itself a worktree, or a submodule.
        shared = await found.run(
            "--git-dir", str(top / ".git"), "rev-parse", "--git-common-dir", plain=True, may_fail=True
        )
        if shared.code:
            raise GitTrouble(f"{top} cannot be asked as a git repository: {shared.errors.strip()}")
        directory = (top / shared.text.strip()).resolve()
        found = cls(program=program, directory=directory, top=top, prefix=found.prefix)
        if found.prefix.parts and not await found._has_project():
            return None  # A repository that only happens to lie above, like that of somebody's home folder.
        return cls(
            program=program, directory=directory, top=top, prefix=found.prefix,
            off={**_OFF, "core.excludesFile": str(_write_excludes(directory)), **await found._programs()},
        )  # fmt: skip

    async def _has_project(self) -> bool:
        """Whether the project's folder is in what is committed, or nothing is yet."""
        head = await self.own_head()
        within = f"{head}:{self.prefix.as_posix()}"
        return head is None or (await self.run("cat-file", "-e", within, may_fail=True)).code == 0

    async def _programs(self) -> dict[str, str]:
        """What the repository's settings would have run on files: turned off, and merge programs made to refuse."""
        listed = await self.run("config", "--list", "--name-only", "-z", may_fail=True)
        off: dict[str, str] = {}
        for name in listed.text.split("\0"):
            if found := _RUNS.match(name.strip()):
                kind, which = found[1].lower(), found[2]
                if kind == "merge":
                    off[f"merge.{which}.driver"] = "false"
                else:
                    off |= {f"filter.{which}.{each}": "" for each in ("clean", "smudge", "process")}
                    off[f"filter.{which}.required"] = "false"
        return off

    async def run(
        self, *words: str, tree: Path | None = None, index: Path | None = None, stdin: bytes = b"",
        may_fail: bool = False, plain: bool = False, directory: Path | None = None,
    ) -> Answer:  # fmt: skip
        """Run git. `directory`: of a worktree, where it keeps what is its own. A failure is raised unless it may be."""
        environment = {
            "PATH": os.defpath, "HOME": "/nonexistent", "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "false", "GIT_ASKPASS": "false", "GIT_NO_REPLACE_OBJECTS": "1",
            # What a partial clone lacks would be fetched in passing, by programs that its settings name.
            "GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1",
            # Not by -c, where a name ends at the first "=".
            "GIT_CONFIG_COUNT": str(len(self.off)),
        }  # fmt: skip
        if not plain:
            environment["GIT_DIR"] = str(directory or self.directory)
            environment["GIT_WORK_TREE"] = str(tree or self.top)
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        for number, (name, value) in enumerate(self.off.items()):
            environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                self.program, *words, env=environment, cwd=tree or "/", start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                # Cancelled while it starts, it would be killed, and its locks would stay.
                ran = await asyncio.shield(starting)
                out, errors = await ran.communicate(stdin)
        except BaseException as why:
            await _end(await starting)
            if isinstance(why, TimeoutError):
                raise GitTrouble(f"git {_verb(words)} did not end within {_SECONDS_MAX:.0f} seconds.") from None
            raise
        answer = Answer(
            code=ran.returncode or 0, text=out.decode(errors="surrogateescape"), errors=errors.decode(errors="replace")
        )
        if answer.code and not may_fail:
            said = " ".join((answer.errors.strip() or out.decode(errors="replace").strip()).split())
            if "promisor" in said or "lazy fetching disabled" in said:
                raise GitTrouble(_PARTIAL)
            raise GitTrouble(f"git {_verb(words)} failed: {said[:500] or f'code {answer.code}'}")
        return answer

    async def commit_of(self, name: str) -> str | None:
        """The commit a name stands for, or None."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return (await self.run(*words, may_fail=True)).text.strip() or None

    async def blob(self, text: str) -> str:
        return (await self.run("hash-object", "-w", "--stdin", "--no-filters", stdin=text.encode())).text.strip()

    async def content(self, name: str) -> str | None:
        """Of a blob that a name stands for."""
        found = await self.run("cat-file", "blob", name, may_fail=True)
        return None if found.code else found.text

    async def move(self, moves: Sequence[tuple[str, str, str]], *, verified: Sequence[tuple[str, str]] = ()) -> bool:
        """Move names, each from what it stands for now, in one go, if others stand for what they should. False: not so.

        The empty name of a commit means that there is no such name yet, or shall not be any more.
        """
        nothing = "0" * max(len(each) for move in moves for each in move[1:])
        lines = ["start"]
        lines += [f"verify {name} {at}" for name, at in verified]
        lines += [f"update {name} {to or nothing} {old or nothing}" for name, old, to in moves]
        lines += ["prepare", "commit", ""]
        moved = await self.run("update-ref", "--stdin", stdin="\n".join(lines).encode(), may_fail=True)
        return moved.code == 0

    async def head_branch(self) -> str | None:
        """The branch of the person's own checkout; None while there is none."""
        # Not --short: where a tag has the same name, that is not the branch's name any more.
        words = ("--git-dir", str(self.top / ".git"), "symbolic-ref", "--quiet", "HEAD")
        return (await self.run(*words, plain=True, may_fail=True)).text.strip().removeprefix("refs/heads/") or None

    async def own_head(self) -> str | None:
        """The commit of the person's own checkout, which may be one of several of this repository."""
        words = ("--git-dir", str(self.top / ".git"), "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return (await self.run(*words, plain=True, may_fail=True)).text.strip() or None

    async def checked_out(self) -> dict[str, Path]:
        """Branches that are checked out somewhere, and where."""
        listed = (await self.run("worktree", "list", "--porcelain", "-z")).text
        found: dict[str, Path] = {}
        where = Path()
        for line in listed.split("\0"):
            word, _, value = line.partition(" ")
            if word == "worktree":
                where = Path(value)
            elif word == "branch":
                found[value.removeprefix("refs/heads/")] = where
        return found

    async def is_dirty(self) -> bool:
        """Whether the person's own checkout has changes that are not committed."""
        own = await self.run(
            "--git-dir", str(self.top / ".git"), "--work-tree", str(self.top), "status", "--porcelain",
            "--untracked-files=no", plain=True, may_fail=True,
        )  # fmt: skip
        return bool(own.text.strip())


def _top(root: Path) -> Path | None:
    return next((each for each in (root, *root.parents) if os.path.lexists(each / ".git")), None)


def remove_stale_lock(path: Path, *, seconds: float = 30.0) -> None:
    """What a git that was killed left of a name only we move. A living one holds it for much shorter."""
    try:
        if wall_ms() / 1000 - os.stat(path).st_mtime >= seconds:
            path.unlink()
    except OSError:
        pass


def _verb(words: Sequence[str]) -> str:
    """Which of git's programs was asked, for whoever reads that it failed."""
    return next((each for at, each in enumerate(words) if each[:1] != "-" and words[at - 1] != "-c"), words[0])


async def _end(ran: asyncio.subprocess.Process) -> None:
    """Asked to end with all it started, so that it takes its locks with it; then made to."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if ran.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(ran.pid, how)
        await asyncio.wait([asyncio.ensure_future(ran.wait())], timeout=_ENDING_SECONDS)


def _write_excludes(directory: Path) -> Path:
    """Into the repository's own folder, where no command of a teammate can write."""
    file = directory / "dugnad" / "exclude"
    text = "".join(f"{each}\n" for each in _NEVER)
    try:
        file.parent.mkdir(exist_ok=True)
        if not file.exists() or file.read_text() != text:
            half = file.with_name(f"exclude.{os.getpid()}")  # Others read it while it is written.
            half.write_text(text)
            half.replace(file)
    except OSError as trouble:
        raise GitTrouble(f"Worktrees need to write to {directory}, and cannot: {trouble.strerror}.") from None
    return file
