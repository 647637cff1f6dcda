"""One tree of git, as an attempt holds it: what is in it, and how that becomes a commit."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .files import is_protected
from .git import Git, GitTrouble, remove_stale_lock
from .searching import TEMPORARY

BRANCHES = "dugnad/"  # Under which all branches of ours stand, in refs/heads.
FENCES = "refs/dugnad/fence/"
# All but what is half written, and what no teammate may change: of it there may be a placeholder in the tree.
ALL_OF_IT = (".", f":(exclude,glob)**/{TEMPORARY}*", ":(exclude,top,literal)dugnad.toml")
_CHECKING = "dugnad-checking"  # A file beside what git keeps of a tree: a check may have left something in it.
_LINK = "160000"  # The mode of what is a repository of its own.
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which attempt a tree is for. `born`: the epoch in which its line of attempts began."""

    mark: str  # The task's number and something that no other board gives it.
    epoch: int
    born: int
    in_order: bool = True  # Whoever had it before put it down; False: their host was lost.
    at: str | None = None  # A commit to begin from, instead of the target's head.

    @property
    def goes_on(self) -> bool:
        return self.born != self.epoch

    @property
    def name(self) -> str:
        return f"{self.mark}.{self.epoch}"


@dataclass(kw_only=True)
class Tree:
    """One tree, held by this process until it is let go."""

    git: Git
    place: Place
    name: str
    path: Path
    own: Path  # Where git keeps what belongs to this tree alone.
    fence: str  # What the task's fence stands for while the attempt may merge.
    told: str = ""  # What whoever works in it must know.
    anew: bool = False  # What was done before is not in it.
    _lock: int = field(default=-1, repr=False)

    @property
    def branch(self) -> str:
        return f"refs/heads/{BRANCHES}task-{self.name}"

    @property
    def fence_name(self) -> str:
        return FENCES + self.place.mark

    @property
    def readable(self) -> tuple[Path, ...]:
        """What of the repository a command may read, to look at its history: all but its settings, which may hold
        secrets, and what belongs to other trees."""
        shared = self.git.directory
        names = ("HEAD", "objects", "refs", "packed-refs", "info", "shallow")
        return (*(shared / name for name in names if (shared / name).exists()), self.own)

    async def run(self, *words: str, stdin: bytes = b"", may_fail: bool = False) -> str:
        answer = await self.git.run(*words, tree=self.path, directory=self.own, stdin=stdin, may_fail=may_fail)
        return answer.text

    async def head(self) -> str:
        return (await self.run("rev-parse", "HEAD")).strip()

    async def commit(self, message: str, author: str) -> str:
        """Put all that is in the tree on its branch. Returns the tip, an old one if nothing changed."""
        base = await self.head()
        await self.stage()
        changes = dict(await self._changes())
        if trouble := await self._unfit(changes):
            await self.run("read-tree", "HEAD")
            raise GitTrouble(trouble)
        if not changes:
            return base
        made = (await self.run("write-tree")).strip()
        return await self._put_on_branch(made, base, message, author)

    async def commit_whatever(self, message: str, author: str) -> str:
        """The same of a tree that is given up: what cannot be in a commit as it is, is left out or made to fit.
        GitTrouble: a file that could be is not, as with a full disk."""
        for each in await asyncio.to_thread(_repositories_in, self.path):
            await asyncio.to_thread(shutil.rmtree, each, ignore_errors=True)
        base = await self.head()
        await self.run(
            "read-tree", "HEAD"
        )  # What an earlier try took down and could not write is to be looked at again.
        await self.run("add", "--all", "--ignore-errors", "--", *ALL_OF_IT, may_fail=True)
        others = await self.run("ls-files", "--others", "--exclude-standard", "-z", "--", *ALL_OF_IT)
        left = (others + await self.run("diff-files", "--name-only", "-z")).split("\0")
        if lost := await asyncio.to_thread(_files_of, self.path, left):
            raise GitTrouble(f"{_shown(lost)}: git could not take it in; it is still in {self.path}.")
        made = (await self.run("write-tree")).strip()
        if made == (await self.run("rev-parse", "HEAD^{tree}")).strip():
            return base
        return await self._put_on_branch(made, base, message, author)

    async def _put_on_branch(self, made: str, base: str, message: str, author: str) -> str:
        tip = await self.git_commit(made, [base], message, author)
        await self.run("update-ref", "HEAD", tip, base)
        await self.run("update-ref", self.branch, tip)  # A merge that did not come to its end may have left it.
        return tip

    async def _changes(self) -> Iterator[tuple[str, str]]:
        """What was taken down and is not in the head: paths, and the modes they have now."""
        fields = (await self.run("diff-index", "--cached", "--raw", "--no-renames", "-z", "HEAD")).split("\0")
        return ((fields[at + 1], fields[at].split()[1]) for at in range(0, len(fields) - 1, 2))

    async def _unfit(self, changes: dict[str, str]) -> str:
        """Why these cannot become a commit, and what to do; empty: they can."""
        if nested := [path for path, mode in changes.items() if mode == _LINK]:
            return f"{_shown(nested)}: a git repository of its own inside the tree; remove its .git, then finish again."
        if rules := [path for path in changes if is_protected(path)]:
            return (
                f"{_shown(rules)}: what the team works under is not the team's to change; undo that, then finish again."
            )
        if filled := [each for each in await self._links() if _listed(self.path / each)]:
            return f"{_shown(filled)}: a submodule, whose files are not part of this tree; empty it, then finish again."
        return ""

    async def _links(self) -> list[str]:
        """The project's submodules. They are empty folders in a tree, and what is put there git does not see."""
        if ".gitmodules" not in _listed(self.path):
            return []
        listed = (await self.run("ls-files", "--stage", "-z")).split("\0")
        return [each.partition("\t")[2] for each in listed if each.startswith(_LINK)]

    async def stage(self) -> None:
        """Take down what is in the tree now."""
        await self.run("add", "--all", "--", *ALL_OF_IT)

    @asynccontextmanager
    async def checking(self) -> AsyncIterator[None]:
        """What a check leaves behind is nobody's work: before and after it, the tree is the same. Who is stopped in
        between leaves a sign, so that whoever takes the tree over clears it up."""
        await self.stage()
        try:
            (self.own / _CHECKING).touch()
        except OSError as trouble:
            raise GitTrouble(f"{self.own} cannot be written: {trouble.strerror}.") from None
        yield
        await self.restore()

    async def restore(self) -> None:
        """Have the tree as it was taken down; what git ignores stays."""
        await self.run("checkout-index", "--all", "--force", "--quiet")
        await self.run("clean", "--quiet", "--force", "--force", "-d")
        (self.own / _CHECKING).unlink(missing_ok=True)

    async def clear_up(self) -> None:
        """Have the tree as its teammate left it, if whoever had it before was stopped in a check or in a merge. Locks
        are of a git that was killed: nobody else holds the tree."""
        for lock in (self.own / "index.lock", self.own / "HEAD.lock", self.git.directory / f"{self.branch}.lock"):
            remove_stale_lock(lock, seconds=0.0)
        if (self.own / _CHECKING).exists():
            await self.restore()
        if not await self.run("symbolic-ref", "--quiet", "HEAD", may_fail=True):
            await self.back_to_branch()

    async def changed(self) -> bool:
        """Whether there is anything in the tree that its head has not."""
        status = await self.run("status", "--porcelain", "--untracked-files=normal", "--", *ALL_OF_IT)
        return bool(status.strip())

    async def is_ahead(self, target: str, tip: str) -> bool:
        """Whether a commit says anything that the target does not."""
        return (await self.git.run("merge-base", "--is-ancestor", tip, target, may_fail=True)).code != 0

    async def git_commit(self, tree: str, parents: list[str], message: str, author: str) -> str:
        words = [word for each in parents for word in ("-p", each)]
        who = ("-c", f"author.name={author}", "-c", f"author.email={author}@dugnad.invalid")
        # The committer is what a merged attempt is found again by: no text of a model is in it.
        by = ("-c", "committer.name=dugnad", "-c", f"committer.email={committer(self.place)}")
        made = await self.run(*who, *by, "commit-tree", tree, *words, "-F", "-", stdin=message.encode(errors="replace"))
        return made.strip()

    async def show(self, commit: str) -> None:
        """Have the tree look like a commit; what git ignores stays."""
        await self.run("checkout", "--quiet", "--force", "--detach", commit)
        await self.run("clean", "--quiet", "--force", "--force", "-d")

    async def back_to_branch(self) -> None:
        await self.run("checkout", "--quiet", "--force", self.branch.removeprefix("refs/heads/"), "--")
        await self.run("clean", "--quiet", "--force", "--force", "-d")

    def let_go(self) -> None:
        """Somebody else may take it over."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def was_checking(own: Path) -> bool:
    """Whether a check may have left something in the tree that git keeps there."""
    return (own / _CHECKING).exists()


def _shown(paths: list[str]) -> str:
    more = " and more" if len(paths) > _SHOWN_MAX else ""
    return ", ".join(each.encode(errors="replace").decode() for each in paths[:_SHOWN_MAX]) + more


def _files_of(tree: Path, paths: list[str]) -> list[str]:
    """Those that are files, and can be read."""
    found = [each for each in paths if each and (tree / each).is_file() and not (tree / each).is_symlink()]
    return [each for each in found if os.access(tree / each, os.R_OK)]


def _repositories_in(tree: Path) -> list[Path]:
    """The .git of every repository inside a tree, but not the tree's own."""
    found = []
    left = [tree / each for each in _listed(tree) if each != ".git"]
    while left:  # A folder too deep for a path is too deep for git, too.
        folder = left.pop()
        if not os.path.islink(folder):
            names = _listed(folder)
            found += [folder / ".git"] * (".git" in names)
            left += [folder / each for each in names if each != ".git"]
    return found


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def committer(place: Place) -> str:
    return f"task-{place.mark}.{place.born}@dugnad.invalid"
