"""Asking git about one repository, never by discovery, and never with settings that are not ours.

Every call names a git directory of our own (`private_repository.py`) and goes through `command.py`, so that git can
start nothing. Of the user's own checkout only plain files are read: what is checked out, and a copy of the index.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...safe_open import OWN
from ..programs import find_program
from . import private_repository
from .command import NO_WALLS, GitCall, Walls, ask
from .obstacles import obstacles, repository_obstacles
from .ownership import GitTooSlow, GitTrouble, refuse_strangers

_SECONDS_MAX = 60.0
_LONG_SECONDS_MAX = 300.0  # For what reads or writes the contents of a whole tree.
_LONG = frozenset({"read-tree", "checkout-index", "update-index", "merge-tree"})
_TELL_SECONDS = 3.0  # After so long, a person is told which git is waited for.
_NO_TEXT = 1_000_000  # Lines that a changed file counts as if it has none.
_LOOK_SECONDS = 0.05  # Between two tries to move names.
_TRIES_MAX = 20  # Times that names may fail to move although they stand where they should and no lock is in the way.
_VERSION = re.compile(rb"git version (\d+)\.(\d+)")
_NEEDED = (2, 38)  # From here on a merge needs no tree.
_WRITES_THE_TREE = frozenset({"read-tree", "checkout-index", "clean"})
_PARTIAL = (
    "The repository is a partial clone, and something is needed that it has not fetched: `git fetch --refetch "
    "--no-filter` brings it."
)
ENVIRONMENT = {  # Nothing of the caller's own is among it.
    "PATH": os.defpath, "HOME": "/dev/null/none", "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0",
    "GIT_EDITOR": "false", "GIT_ASKPASS": "false", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_DIR": "/dev/null/none",
    # What a partial clone lacks would be fetched in passing, by programs that its settings name.
    "GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1",
}  # fmt: skip


Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GitOutput:
    code: int
    text: str
    errors: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """One repository. `directory` is what all its checkouts share; `prefix` is where in a tree the project lies."""

    program: str
    directory: Path
    own: Path  # What git keeps of the user's own checkout alone.
    top: Path
    prefix: Path
    settings: str = ""  # Of our own, for every git directory that is made beside theirs.
    is_bare: bool = False
    is_partial: bool = False
    behind: Walls | None = None  # None: behind all that this machine has.
    stale_seconds: float = 10.0  # A lock of git's that does not change for so long is a dead one's.
    tell: Tell = lambda _: None  # Is told which git is waited for, if that takes long; an empty text: none any more.
    _seen: dict[Path, tuple[tuple[int, int], float]] = field(default_factory=dict, repr=False)

    @property
    def private(self) -> Path:
        """Our git directory for what needs no tree."""
        return self.directory / "dugnad" / "git"

    @classmethod
    async def find(cls, root: Path, *, path: str, tell: Tell = lambda _: None) -> Git | None:
        """The repository that a project lies in. None: there is none, or no git on the path."""
        if (top := _top(root)) is None or (program := find_program("git", path, outside=top)) is None:
            return None
        refuse_strangers(top, top / ".git")
        program = await _real_program(program)
        if (found := private_repository.directories_of(top)) is None:
            raise GitTrouble(f"{top} cannot be asked as a git repository: its .git leads to none.")
        own, directory = found
        git = cls(program=program, directory=directory, own=own, top=top, prefix=root.relative_to(top), tell=tell)
        git.check()
        for odd, why in (await asyncio.to_thread(repository_obstacles, directory)).items():
            more = "" if Path(odd).is_relative_to(directory) else " Its folder is named in objects/info/alternates."
            raise GitTrouble(f"{odd} cannot be in a repository: {why}.{more} Remove that, or work in a clone.")
        return await git._with_settings()

    def check(self, *names: str) -> None:
        """GitTrouble: what we use of the repository, or a name that is to be moved, is a link or a stranger's."""
        private_repository.check_layout(self.directory, self.own, names)

    async def _with_settings(self) -> Git | None:
        theirs = await self._their_settings()
        more = await self._their_settings("config.worktree") if (self.directory / "config.worktree").is_file() else {}
        if not private_repository.points_back(self.top, self.own, self.directory, (theirs | more).get("core.worktree")):
            words = ["git", f"--git-dir={self.own}", "config", "core.worktree", str(self.top)]
            says = shlex.join(words) if self.own == self.directory else "git worktree repair"
            told = f"which does not name {self.top} as its checkout; if it is one, `{says}` there makes it known."
            raise GitTrouble(f"{self.top / '.git'} leads to {self.own}, {told}")
        try:
            settings = private_repository.settings_from(theirs)
        except GitTrouble as trouble:
            raise GitTrouble(f"{self.directory} cannot be worked with. {trouble}") from None
        is_partial = any(name.endswith((".promisor", ".partialclone")) for name in theirs)
        is_bare = private_repository.is_true(theirs.get("core.bare"))
        git = replace(self, settings=settings, is_bare=is_bare, is_partial=is_partial)
        git.make_private(git.private, "refs/heads/dugnad/none")
        if git.prefix.parts and not await git._has_project():
            return None  # A repository that only happens to lie above, like that of somebody's home folder.
        return git

    async def _their_settings(self, name: str = "config") -> dict[str, str]:
        """The settings in the repository's own file, without those of files it includes."""
        words = ("config", "--file", str(self.directory / name), "--no-includes", "--list", "-z")
        listed = await self._ask(words, {}, Path("/"))
        if listed.code:
            raise GitTrouble(f"{self.directory / name} cannot be read: {listed.errors.strip()[:500]}")
        pairs = (each.partition("\n") for each in listed.text.split("\0") if each)
        return {name: value if mark else "true" for name, mark, value in pairs}

    def make_private(self, directory: Path, branch: str | None) -> None:
        """Make a git directory of our own inside the repository's, where no command of a teammate can write. `branch`
        None: the branch stays as it is."""
        self.check()
        try:
            head = f"ref: {branch}\n" if branch else None
            private_repository.make(directory, self.directory, settings=self.settings, head=head)
        except OSError as trouble:
            raise GitTrouble(f"Worktrees need to write to {self.directory}, and cannot: {trouble.strerror}.") from None

    async def _has_project(self) -> bool:
        """Whether the project's folder is in the last commit, or there is no commit yet."""
        head = await self.own_head()
        within = f"{head}:{self.prefix.as_posix()}"
        return head is None or (await self.run("cat-file", "-e", within, may_fail=True)).code == 0

    async def run(
        self, *words: str, tree: Path | None = None, stdin: bytes = b"", may_fail: bool = False,
        directory: Path | None = None, keep: Sequence[int] = (),
    ) -> GitOutput:  # fmt: skip
        """Run git. `directory`: the git directory of a tree. GitTrouble: it failed, unless it `may_fail`."""
        directory = directory or self.private
        environment = {"GIT_DIR": str(directory)}
        if tree is not None:
            environment["GIT_WORK_TREE"] = str(tree)
        writable = [directory, *(self.directory / name for name in ("objects", "refs", "logs"))]
        if "update-ref" in words:
            self.check(*re.findall(r"(?<!\S)refs/\S+", " ".join((*words, os.fsdecode(stdin)))))
            writable.append(self.directory)  # A name that is deleted may have to be removed from packed-refs there.
        if tree is not None and not _WRITES_THE_TREE.isdisjoint(words):
            writable.append(tree)
        # Whatever a link in the tree leads to by then, git takes only files of the tree into the repository.
        readable = (tree, self.directory) if tree is not None and "update-index" in words else ()
        # Git takes the folder it runs in for a tree if none is named, and reads the attributes there.
        folder = tree or directory / private_repository.EMPTY
        answer = await self._ask(
            words, environment, folder, stdin=stdin, writable=writable, readable=readable, keep=keep
        )
        if answer.code and not may_fail:
            said = " ".join((answer.errors.strip() or answer.text.encode(errors="replace").decode().strip()).split())
            if self.is_partial and "unable to read" in said:
                raise GitTrouble(_PARTIAL)
            raise GitTrouble(f"git {_verb(words)} failed: {said[:500] or f'code {answer.code}'}")
        return answer

    async def _ask(self, words: Sequence[str], environment: dict[str, str], folder: Path, **about: Any) -> GitOutput:
        call = GitCall(argv=(self.program, *words), environment={**ENVIRONMENT, **environment}, folder=folder, **about)
        verb, most = _verb(words), _SECONDS_MAX if _LONG.isdisjoint(words) else _LONG_SECONDS_MAX
        waited = f"Waiting for git {verb} in {environment.get('GIT_WORK_TREE') or self.directory}."
        telling = asyncio.get_running_loop().call_later(_TELL_SECONDS, self.tell, waited)
        try:
            code, out, errors = await ask(call, seconds=most, behind=self.behind)
        except TimeoutError:
            raise GitTooSlow(f"git {verb} did not end within {most:.0f} seconds.") from None
        except OSError as trouble:
            raise GitTrouble(f"git {verb} could not be started: {trouble.strerror}.") from None
        finally:
            if telling.when() <= asyncio.get_running_loop().time():
                self.tell("")
            telling.cancel()
        if code == -signal.SIGXCPU:
            raise GitTooSlow(f"git {verb} used the processor for more than {most:.0f} seconds.")
        if code < 0:  # Its silence is no answer.
            raise GitTrouble(f"git {verb} was ended by {signal.Signals(-code).name}.")
        return GitOutput(code=code, text=out.decode(errors="surrogateescape"), errors=errors.decode(errors="replace"))

    async def commit_of(self, name: str) -> str | None:
        """The commit a name stands for, or None."""
        return await self.object_of(f"{name}^{{commit}}") or None

    async def tree_of(self, commit: str) -> str:
        return (await self.run("rev-parse", f"{commit}^{{tree}}")).text.strip()

    async def object_of(self, name: str) -> str:
        """The object that a name stands for; empty: there is none."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", name)
        found = await self.run(*words, may_fail=True)
        if found.code not in (0, 1):  # The repository is damaged, so nothing is known about the name.
            raise GitTrouble(f"git rev-parse failed: {' '.join(found.errors.split())[:500]}")
        return found.text.strip()

    async def is_in(self, commit: str, other: str) -> bool:
        """Whether another commit has this one in its history, or is the same."""
        return (await self.run("merge-base", "--is-ancestor", commit, other, may_fail=True)).code == 0

    async def changed_lines(self, base: str, tip: str) -> dict[str, int]:
        """By path, how many lines a commit added and removed since it parted from another. What is no text counts as
        very many."""
        parted = (await self.run("merge-base", base, tip, may_fail=True)).text.strip() or base
        listed = await self.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", parted, tip)
        rows = [each.split("\t", 2) for each in listed.text.split("\0") if each]
        return {path: sum(int(each) if each != "-" else _NO_TEXT for each in counts) for *counts, path in rows}

    async def changed_paths(self, base: str, tip: str) -> list[str]:
        """The paths that a commit changed since it parted from another."""
        parted = (await self.run("merge-base", base, tip, may_fail=True)).text.strip() or base
        listed = await self.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", parted, tip)
        return [each for each in listed.text.split("\0") if each]

    async def change_size(self, base: str, tip: str) -> tuple[int, int, int]:
        """How many files differ between two commits, and how many lines the second adds and removes."""
        listed = await self.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", base, tip)
        pairs = [each.split("\t")[:2] for each in listed.text.split("\0") if each]
        added, removed = (sum(int(pair[side]) for pair in pairs if pair[side].isdigit()) for side in (0, 1))
        return len(pairs), added, removed

    async def diff(self, base: str, tip: str) -> str:
        """What differs between two commits, as a patch."""
        shown = await self.run("diff-tree", "-r", "-p", "--no-color", "--no-ext-diff", "--no-textconv", base, tip)
        return shown.text

    async def blob(self, text: str) -> str:
        return (await self.run("hash-object", "-w", "--stdin", "--no-filters", stdin=text.encode())).text.strip()

    async def content(self, name: str) -> str | None:
        """The content of a blob; None: there is none."""
        found = await self.run("cat-file", "blob", name, may_fail=True)
        return None if found.code else found.text

    async def move(self, moves: Sequence[tuple[str, str, str]], *, verified: Sequence[tuple[str, str]] = ()) -> bool:
        """Move names in one step, each from an old commit to a new one, if `verified` names stand for what they should.
        An empty old commit: the name must not exist yet. An empty new one: the name is deleted. False: nothing moved.
        """
        nothing = "0" * max(len(each) for move in moves for each in move[1:])
        lines = ["start"]
        lines += [f"verify {name} {at}" for name, at in verified]
        lines += [f"update {name} {to or nothing} {old or nothing}" for name, old, to in moves]
        lines += ["prepare", "commit", ""]
        moved = await self.run("update-ref", "--stdin", stdin=os.fsencode("\n".join(lines)), may_fail=True)
        return moved.code == 0

    async def move_when_free(
        self, moves: Sequence[tuple[str, str, str]], *, verified: Sequence[tuple[str, str]] = ()
    ) -> bool:
        """The same, but wait for the locks of other processes. False: a name stands for something else by now."""
        expected = [*verified, *((name, old) for name, old, _ in moves)]
        tries = _TRIES_MAX
        while not await self.move(moves, verified=verified):
            if [await self.object_of(name) for name, _ in expected] != [at for _, at in expected]:
                return False
            locked = [self.remove_stale_lock(name) for name, _ in expected]  # Each is looked at.
            if not any(locked):
                tries -= 1  # No lock is in the way, so waiting does not help for long.
                if not tries:
                    raise GitTrouble(f"{moves[0][0]} cannot be moved; is {self.directory} writable?")
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    def remove_stale_lock(self, name: str, *, now: float | None = None) -> bool:
        """Remove the lock of a name if a killed git left it. Returns whether there was a lock at all.

        A living git holds a lock for a much shorter time. The time stamp of the file is not used, since it may be
        anything: a lock is stale when it stayed the same for `stale_seconds` between two looks of ours.
        """
        path, now = self.directory / f"{name}.lock", time.monotonic() if now is None else now
        try:
            found = os.stat(path)
        except OSError:
            self._seen.pop(path, None)
            return False
        which = (found.st_ino, found.st_ctime_ns)
        first, since = self._seen.setdefault(path, (which, now))
        if first != which:
            self._seen[path] = (which, now)
        elif now - since >= self.stale_seconds:
            path.unlink(missing_ok=True)
            del self._seen[path]
        return True

    # The user's own checkout.

    async def head_branch(self) -> str | None:
        """The branch that is checked out; None while there is none."""
        head = private_repository.head_of(self.own)
        return head.removeprefix("refs/heads/") if head.startswith("refs/heads/") else None

    async def own_head(self) -> str | None:
        """The commit of the user's own checkout, which may be one of several of this repository."""
        head = private_repository.head_of(self.own)
        return await self.commit_of(head) if head else None

    async def checked_out(self) -> dict[str, Path]:
        """Branches that are checked out somewhere, and where."""
        main = self.top if self.own == self.directory else self.directory.parent
        checkouts = [] if self.is_bare else [(self.directory, main)]
        with suppress(OSError):
            for each in (self.directory / "worktrees").iterdir():
                checkouts.append((each, Path(private_repository.path_in(each / "gitdir") or each).parent))
        heads = ((private_repository.head_of(own), where) for own, where in checkouts)
        return {head.removeprefix("refs/heads/"): where for head, where in heads if head.startswith("refs/heads/")}

    async def is_dirty(self) -> bool:
        """Whether the user's own checkout has changes that are not committed; not whether there are new files."""
        return bool(await self.changes(new=False))

    async def is_tracked(self, name: str) -> bool:
        """Whether something of this name in the project is under version control: in the last commit or the next."""
        path, head = (self.prefix / name).as_posix(), await self.own_head()
        found = (await self.run("ls-tree", "-z", "--full-tree", head, "--", path)).text if head else ""
        async with self._own_index() as directory:
            words = ("ls-files", "-z", "--", f":(literal){path}")
            found += (await self.run(*words, tree=self.top, directory=directory)).text
        return bool(found)

    async def changes(self, *, new: bool = True) -> list[str]:
        """The paths of the project that are not committed in the user's own checkout. Their index is not touched."""
        where = ("--", self.prefix.as_posix())
        for odd, why in (await asyncio.to_thread(obstacles, self.top, skipped=str(self.prefix / OWN))).items():
            raise GitTrouble(f"{self.top / odd} cannot be in a checkout: {why}. Look at it, then remove it.")
        async with self._own_index() as directory:
            refresh = ("update-index", "-q", "--refresh", "--ignore-submodules", "--unmerged")
            await self.run(*refresh, tree=self.top, directory=directory, may_fail=True)
            listing = ["ls-files", "-z", *where]
            if (head := await self.own_head()) is not None:
                listing = ["diff-index", "-z", "--name-only", "--ignore-submodules=all", head, *where]
            found = (await self.run(*listing, tree=self.top, directory=directory)).text
            if new:
                words = ("ls-files", "--others", "--directory", "--no-empty-directory", "--exclude-standard", "-z")
                found += (await self.run(*words, *where, tree=self.top, directory=directory)).text
            return [each for each in found.split("\0") if each]

    @asynccontextmanager
    async def _own_index(self) -> AsyncIterator[Path]:
        """A git directory with a copy of the index of the user's own checkout, and of the one that it may share."""
        aside = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self.private, prefix="index."))
        try:
            self.make_private(aside, "refs/heads/dugnad/none")
            for name in os.listdir(self.own):
                if name == "index" or name.startswith("sharedindex."):
                    await asyncio.to_thread(private_repository.copy, self.own / name, aside / name)
            yield aside
        finally:
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)


def _top(root: Path) -> Path | None:
    return next((each for each in (root, *root.parents) if os.path.lexists(each / ".git")), None)


async def _real_program(program: str) -> str:
    """The git that does the work, where the one in the path is a script that leads to it. GitTrouble: it is too old."""
    is_script = (private_repository.read(Path(await asyncio.to_thread(os.path.realpath, program))) or "").startswith(
        "#!"
    )
    # A script has to start another program, so it has no walls. It is the user's own, and is asked only about itself.
    behind = NO_WALLS if is_script else None

    async def said(word: str) -> bytes:
        call = GitCall(argv=(program, word), environment=ENVIRONMENT, folder=Path("/"))
        return (await ask(call, seconds=_SECONDS_MAX, behind=behind))[1].strip()

    version = _VERSION.match(await said("--version"))
    if version is None or (int(version[1]), int(version[2])) < _NEEDED:
        raise GitTrouble("Worktrees need git 2.38 or newer; update git, or use --in-place.")
    return os.path.join(os.fsdecode(await said("--exec-path")), "git") if is_script else program


def _verb(words: Sequence[str]) -> str:
    """Which of git's programs was asked, for a message that it failed."""
    return next((each for at, each in enumerate(words) if each[:1] != "-" and words[at - 1] != "-c"), words[0])
