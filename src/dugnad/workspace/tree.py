"""One tree of git, as an attempt holds it: what is in it, and how that becomes a commit."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from .git import Git, GitTrouble
from .searching import TEMPORARY

BRANCHES = "dugnad/"  # Under which all branches of ours stand, in refs/heads.
FENCES = "refs/dugnad/fence/"
# All but what is half written, and what no teammate may change: of it there may be a placeholder in the tree.
ALL_OF_IT = (".", f":(exclude,glob)**/{TEMPORARY}*", ":(exclude,glob)**/dugnad.toml")
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
        listed = await self.run("diff-index", "--cached", "--raw", "--no-renames", "-z", "HEAD")
        fields = listed.split("\0")
        if nested := [fields[at + 1] for at in range(0, len(fields) - 1, 2) if fields[at].split()[1] == "160000"]:
            await self.run("read-tree", "HEAD")
            names = ", ".join(nested[:_SHOWN_MAX])
            raise GitTrouble(
                f"{names}: a git repository of its own inside the tree; remove its .git, then finish again."
            )
        if not listed:
            return base
        made = (await self.run("write-tree")).strip()
        tip = await self.git_commit(made, [base], message, author)
        await self.run("update-ref", "HEAD", tip, base)
        await self.run("update-ref", self.branch, tip)  # A merge that did not come to its end may have left it.
        return tip

    async def stage(self) -> None:
        """Take down what is in the tree now."""
        await self.run("add", "--all", "--", *ALL_OF_IT)

    async def restore(self) -> None:
        """Have the tree as it was taken down; what git ignores stays."""
        await self.run("checkout-index", "--all", "--force", "--quiet")
        await self.run("clean", "--quiet", "--force", "-d")

    async def changed(self) -> bool:
        """Whether there is anything in the tree that its head has not."""
        status = await self.run("status", "--porcelain", "--", *ALL_OF_IT)
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
        await self.run("clean", "--quiet", "--force", "-d")

    async def back_to_branch(self) -> None:
        await self.run("checkout", "--quiet", "--force", self.branch.removeprefix("refs/heads/"))

    def let_go(self) -> None:
        """Somebody else may take it over."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def committer(place: Place) -> str:
    return f"task-{place.mark}.{place.born}@dugnad.invalid"
