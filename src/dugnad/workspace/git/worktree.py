"""One git worktree, as an attempt holds it: what is in it, and how that becomes a commit."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path

from ..files.files import is_protected
from ..files.search import TEMPORARY
from . import private_repository
from .git import Git
from .merging import TrialMerge
from .obstacles import clear_away, names_in, obstacles, remove_repositories
from .ownership import GitTooSlow, GitTrouble

BRANCHES = "dugnad/"  # All our branches begin so, in refs/heads.
FENCES = "refs/dugnad/fence/"
# All files but half-written ones and dugnad.toml, which no teammate may change: the tree may have a placeholder of it.
ALL_OF_IT = (".", f":(exclude,glob)**/{TEMPORARY}*", ":(exclude,top,literal)dugnad.toml")
CHECKING = "dugnad-checking"  # A file in a tree's git directory: a check may have left something in the tree.
HELD_IN = "dugnad-epoch"  # Another: the epoch of the last attempt that held the tree, 0 if the tree lacks work.
_LINK = "160000"  # The mode of a repository inside another.
_CONFLICT = "Dugnad-Conflict"  # A trailer of a commit that has marks of a conflict: in how many files.
_SHOWN_MAX = 20
_NESTED = "{}: a git repository of its own inside the tree; remove its .git, then finish again."


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRef:
    """Which attempt a tree is for. `born`: the epoch in which its line of attempts began."""

    mark: str  # The task's number, and a text that differs from board to board.
    epoch: int
    born: int
    before: int = 0  # The epoch of the attempt that it goes on from.
    in_order: bool = True  # The attempt before ended in order; False: its host was lost.
    at: str | None = None  # A commit to begin from, instead of the target's head.
    authors: Mapping[int, str] = field(default_factory=dict)  # Of the attempts so far, by epoch.

    @property
    def goes_on(self) -> bool:
        return self.born != self.epoch

    @property
    def name(self) -> str:
        return f"{self.mark}.{self.epoch}"

    @property
    def committer(self) -> str:
        """What a merged attempt is found again by: no text of a model is in it."""
        return f"task-{self.mark}.{self.born}@dugnad.invalid"


@dataclass(kw_only=True)
class Tree:
    """One tree, held by this process until it is let go."""

    git: Git
    attempt: AttemptRef
    name: str
    path: Path
    own: Path  # Its git directory, which is ours.
    fence: str = ""  # What the task's fence must stand for, so that the attempt may merge.
    anew: bool = False  # The work of earlier attempts is not in it.
    carried_over: bool = False  # What a lost host had in its tree is in it, without files that git ignores.
    older: bool = False  # What was changed last, perhaps on another machine, may not be in it.
    bytes_max: int = 1024**3  # Of all files that one attempt changes or adds.
    _lock: int = field(default=-1, repr=False)
    _seconds: float = 0.0  # That git worked in it.
    _slow: bool = False  # The patterns in its .gitignore files take too long.

    @property
    def branch(self) -> str:
        return branch_of(self.name)

    @property
    def fence_name(self) -> str:
        return FENCES + self.attempt.mark

    @property
    def scratch(self) -> Path:
        """What its commands have as /tmp. It stays as long as the tree."""
        return scratch_of(self.path)

    @property
    def readable(self) -> tuple[Path, ...]:
        """The parts of the repository that a command may read, to see its history: not the settings, which may hold
        secrets, and not what belongs to other trees."""
        self.git.check()
        shared = self.git.directory
        names = ("objects", "refs", "packed-refs", "shallow")
        return (*(shared / name for name in names if (shared / name).exists()), self.own)

    async def run(self, *words: str, stdin: bytes = b"", may_fail: bool = False) -> str:
        # Git holds the lock of the tree as long as it lives: a process that gets the lock knows that no git is left.
        keep = () if self._lock < 0 else (self._lock,)
        asked = self.git.run(*words, tree=self.path, directory=self.own, stdin=stdin, may_fail=may_fail, keep=keep)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            return (await asked).text
        finally:
            self._seconds += clock() - began

    def took(self) -> float:
        """The seconds that git worked in it since this was asked before."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    @property
    def lacks_work(self) -> bool:
        """Whether earlier work is not in it, and no mind has replied since it was told so."""
        return held_in(self.own) == 0

    def hold(self, *, lacks_work: bool = False) -> None:
        """From now on it has all work up to this attempt, unless it `lacks_work`."""
        private_repository.write(self.own / HELD_IN, f"{0 if lacks_work else self.attempt.epoch}\n")

    async def head(self) -> str:
        return (await self.run("rev-parse", "HEAD")).strip()

    async def author_of(self, commit: str) -> str:
        return (await self.run("log", "-1", "--format=%an", commit)).strip()

    async def commit(self, message: str, author: str) -> str:
        """Put all that is in the tree on its branch. Returns the tip, which is the old one if nothing changed."""
        await self.stage()
        changes = await self._changes()
        if trouble := await self._unfit(changes):
            await self.run("read-tree", "--reset", "HEAD")
            raise GitTrouble(trouble)
        return await self._put_on_branch(message, author) if changes else await self.head()

    async def commit_whatever(self, message: str, author: str) -> str:
        """Commit a tree that is given up: what cannot be in a commit is left out or made to fit. GitTrouble: a file
        that could be in it is not, for example because the disk is full."""
        await asyncio.to_thread(remove_repositories, self.path)
        # An earlier try may have staged what it could not write: look at it again.
        await self.run("read-tree", "--reset", "HEAD")
        await self.stage(whatever=True)
        return await self._put_on_branch(message, author) if await self._changes() else await self.head()

    async def _put_on_branch(self, message: str, author: str) -> str:
        made = (await self.run("write-tree")).strip()
        tip = await self.git_commit(made, ["HEAD"], message, author)
        await self.run("update-ref", self.branch, tip)
        self._set_head(f"ref: {self.branch}")  # A merge that was cut short may have left it elsewhere.
        return tip

    def _set_head(self, text: str) -> None:
        private_repository.write(self.own / "HEAD", f"{text}\n")

    async def _changes(self) -> dict[str, str]:
        """What is staged and not in the head: paths, and the modes they have now."""
        return _modes(await self.run("diff-index", "--cached", "--raw", "--no-renames", "-z", "HEAD"))

    async def _unfit(self, changes: dict[str, str]) -> str:
        """Why these cannot become a commit, and what to do; empty: they can."""
        if nested := [path for path, mode in changes.items() if mode == _LINK]:
            return _NESTED.format(_shown(nested))
        if rules := [path for path in changes if is_protected(path)]:
            return f"{_shown(rules)}: the team may not change the rules it works under; undo that, then finish again."
        if filled := [each for each in await self._links(changes) if not _is_empty(self.path / each)]:
            return f"{_shown(filled)}: a submodule, whose files are not part of this tree; empty it, then finish again."
        return ""

    async def _links(self, changes: dict[str, str]) -> list[str]:
        """The project's submodules. They are empty folders in a tree, and git does not see what is put there."""
        if ".gitmodules" not in names_in(self.path) and ".gitmodules" not in changes:
            return []
        listed = (await self.run("ls-files", "--stage", "-z")).split("\0")
        return [each.partition("\t")[2] for each in listed if each.startswith(_LINK)]

    async def stage(self, *, whatever: bool = False) -> None:
        """Put what is in the tree into the index. GitTrouble: something cannot be put there, such as a repository
        inside the tree, which git never looks into. `whatever`: leave that out, and the largest files if there is too
        much."""
        if whatever:
            await self._clear_away()
        elif found := await asyncio.to_thread(obstacles, self.path):
            raise GitTrouble(f"{_reasons(found)}. Remove that, then finish again.")
        changed, others = await asyncio.gather(
            self.run("diff-files", "--raw", "--no-renames", "--ignore-submodules=all", "-z", "--", *ALL_OF_IT),
            self._others(whatever),
        )
        now = _modes(changed)
        new = [each for each in others.split("\0") if each]
        nested = [*(each for each in new if each.endswith("/")), *(path for path in now if now[path] == _LINK)]
        sizes, odd = await asyncio.to_thread(_sizes, self.path, [each for each in (*now, *new) if each not in nested])
        if whatever:
            files = _that_fit(self.path, sizes, self.bytes_max)
        elif trouble := _too_much(nested, odd, sizes, self.bytes_max):
            raise GitTrouble(trouble)
        else:
            files = list(sizes)
        gone = [path for path in now if path not in sizes]
        for words, paths in ((("--force-remove",), gone), (("--add", "--replace", "--remove"), files)):
            if paths:
                given = "".join(f"{each}\0" for each in paths).encode(errors="surrogateescape")
                await self.run("update-index", "-z", *words, "--stdin", stdin=given)

    async def _others(self, whatever: bool) -> str:
        """The files that are neither in the index nor ignored. `whatever`: if the patterns of the tree take too long,
        do without them."""
        words = ("ls-files", "--others", "-z")
        if not (whatever and self._slow):
            try:
                return await self.run(*words, "--exclude-standard", "--", *ALL_OF_IT)
            except GitTooSlow as slow:
                self._slow = True
                if not whatever:
                    raise GitTooSlow(f"{slow} Simplify the patterns in .gitignore, then finish again.") from None
        return await self.run(*words, f"--exclude-from={self.own / 'info' / 'exclude'}", "--", *ALL_OF_IT)

    async def _clear_away(self) -> None:
        """What no git may meet is nobody's work, as in a tree that is given up, or what a check left."""
        await asyncio.to_thread(clear_away, self.path)

    @asynccontextmanager
    async def checking(self) -> AsyncIterator[None]:
        """Have the tree the same after a check as before it: what a check leaves behind is nobody's work. A process
        that is stopped in between leaves a sign, so that the next one clears the tree up."""
        await self.stage()
        try:
            (self.own / CHECKING).touch()
        except OSError as trouble:
            raise GitTrouble(f"{self.own} cannot be written: {trouble.strerror}.") from None
        yield
        await self.restore()

    async def restore(self) -> None:
        """Have the tree as it is in the index; ignored files stay."""
        await self._clear_away()
        await self.run("checkout-index", "--all", "--force", "--quiet")
        await self._clean()
        (self.own / CHECKING).unlink(missing_ok=True)

    async def _clean(self) -> None:
        await self.run("clean", "--quiet", "--force", "--force", "-d")

    async def clear_up(self) -> None:
        """Have the tree as its teammate left it, if the process before was stopped in a check or in a merge. Any locks
        are those of a dead git: a living one would hold the lock of the tree."""
        for lock in (self.own / "index.lock", self.own / "HEAD.lock", self.git.directory / f"{self.branch}.lock"):
            lock.unlink(missing_ok=True)
        if (self.own / CHECKING).exists():
            await self.restore()
        if not on_branch(self.own):
            await self.back_to_branch()

    async def changed(self) -> bool:
        """Whether the tree differs from its head."""
        await self.stage()
        return bool(await self._changes())

    async def is_ahead(self, target: str, tip: str) -> bool:
        """Whether a commit has something that the target does not have."""
        return not await self.git.is_in(tip, target)

    async def git_commit(self, tree: str, parents: list[str], message: str, author: str) -> str:
        words = [word for each in parents for word in ("-p", each)]
        who = ("-c", f"author.name={author}", "-c", f"author.email={author}@dugnad.invalid")
        by = ("-c", "committer.name=dugnad", "-c", f"committer.email={self.attempt.committer}")
        made = await self.run(*who, *by, "commit-tree", tree, *words, "-F", "-", stdin=message.encode(errors="replace"))
        return made.strip()

    async def show(self, commit: str) -> None:
        """Have the tree look like a commit; ignored files stay. It leaves its branch first: if this is stopped on the
        way, the work of others must not look like its own."""
        self._set_head(commit)
        await self._clear_away()
        await self.run("read-tree", "--reset", "-u", commit)
        await self._clean()

    async def bring_in(self, trial: TrialMerge, author: str) -> None:
        """Have the tree and its branch be what the branch's tip and another commit come to, with marks where they
        conflict. The branch moves when the tree is complete: if this is stopped, the tree goes back to one of them."""
        commit = trial.head
        if trial.base != trial.tip:  # Otherwise there is no work of its own yet.
            said = f"{_CONFLICT}: {len(trial.files)}\n" if trial.files else ""
            parents, message = [trial.tip, trial.head], f"Bring in what others merged\n\n{said}"
            commit = await self.git_commit(trial.tree, parents, message, author)
        await self.show(commit)
        await self.run("update-ref", self.branch, commit)
        self._set_head(f"ref: {self.branch}")

    async def unresolved(self, target: str) -> list[str]:
        """The files that still have marks of a conflict that `bring_in` left."""
        words = ("log", "--merges", "--max-count=1", "--format=%H", f"--grep=^{_CONFLICT}: ", f"{target}..HEAD")
        if not await self.run(*words):
            return []
        await self.stage()
        marks = ("grep", "--cached", "--text", "-l", "-z", "-E", "^(<{7}|>{7}) [0-9a-f]{40,64}")
        return [each for each in (await self.run(*marks, may_fail=True)).split("\0") if each]

    async def back_to_branch(self) -> None:
        await self._clear_away()
        await self.run("read-tree", "--reset", "-u", self.branch)
        await self._clean()
        self._set_head(f"ref: {self.branch}")

    def let_go(self) -> None:
        """Let another process take the tree over."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def branch_of(name: str) -> str:
    """The branch of the tree that has this name."""
    return f"refs/heads/{BRANCHES}task-{name}"


def scratch_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.tmp")


def _modes(raw: str) -> dict[str, str]:
    """The paths in what git's diff printed, and the modes they have now."""
    fields = raw.split("\0")
    return {fields[at + 1]: fields[at].split()[1] for at in range(0, len(fields) - 1, 2)}


def _shown(paths: list[str]) -> str:
    more = " and more" if len(paths) > _SHOWN_MAX else ""
    return ", ".join(each.encode(errors="replace").decode() for each in paths[:_SHOWN_MAX]) + more


def _reasons(found: dict[str, str]) -> str:
    return ". ".join(f"{_shown([path])}: {why}" for path, why in list(found.items())[:_SHOWN_MAX])


def on_branch(own: Path) -> bool:
    """Whether a tree is on its branch; if not, it was being merged, and has the work of others in it too."""
    return private_repository.head_of(own).startswith("refs/")


def held_in(own: Path) -> int | None:
    """What HELD_IN says; None: an earlier version made the tree."""
    said = (private_repository.read(own / HELD_IN) or "").strip()
    return int(said) if said.isdecimal() else None


def _sizes(tree: Path, paths: list[str]) -> tuple[dict[str, int], list[str]]:
    """The sizes of the files and links that lie in the tree itself, not behind a link. And the paths that git cannot
    keep: pipes, sockets, devices."""
    found: dict[str, int] = {}
    odd: list[str] = []
    is_within = cache(lambda folder: os.path.realpath(tree / folder) == str(tree / folder))
    for path in paths:
        try:
            mode, size = (about := os.lstat(tree / path)).st_mode, about.st_size
        except OSError:
            continue
        if not stat.S_ISDIR(mode) and is_within(os.path.dirname(path)):
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                found[path] = size
            else:
                odd.append(path)
    return found, odd


def _too_much(nested: list[str], odd: list[str], sizes: dict[str, int], bytes_max: int) -> str:
    """Why this cannot be put into the index, and what to do; empty: it can."""
    if nested:
        return _NESTED.format(_shown([each.rstrip("/") for each in nested]))
    if odd:
        return f"{_shown(odd)}: git can only add regular files and links; remove it, then finish again."
    if (total := sum(sizes.values())) <= bytes_max:
        return ""
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
    return (
        f"The files changed here have {total:,} bytes, and {bytes_max:,} are allowed: remove what does not belong in "
        f"the project, or name it in .gitignore, then finish again. The largest: {_shown(largest)}."
    )


def _that_fit(tree: Path, sizes: dict[str, int], bytes_max: int) -> list[str]:
    """The smaller ones of those that can be read, as many as there is room for."""
    can_be_read = [each for each in sizes if os.path.islink(tree / each) or os.access(tree / each, os.R_OK)]
    ordered = sorted(can_be_read, key=sizes.__getitem__)
    sums = accumulate(sizes[each] for each in ordered)
    return [path for path, total in zip(ordered, sums, strict=True) if total <= bytes_max]


def _is_empty(folder: Path) -> bool:
    """Whether a submodule's folder is as a tree has it: empty, or not there."""
    return not os.path.lexists(folder) or (not folder.is_symlink() and folder.is_dir() and not names_in(folder))
