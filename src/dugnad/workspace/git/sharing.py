"""What hosts on several machines share through a remote: the target, the branches of attempts, and the fences.

The remote has the truth. A name here is moved only after the remote's, so this clone is never ahead of it. An attempt
raises its task's fence there before it begins. Finished work lands in one step that moves the target and changes the
fence, too: git does not send the expected value of a name that stays as it is, so an overtaken attempt would land.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field

from ...errors import StaleClaim
from ...text import pasted
from .git import Git
from .ownership import GitTrouble
from .remote import Remote
from .worktree import BRANCHES, FENCES, Tree

COPIES = "refs/dugnad/copy/"  # The branches and fences of all attempts, as the remote has them.
_ATTEMPTS = f"refs/heads/{BRANCHES}task-"
_HANDED = "refs/dugnad/handed/"  # All that was in the tree of an attempt when it ended in order.
_TREE = r"\d+-[0-9a-f]+\.\d+"
_NAME = re.compile(rf"{re.escape(_ATTEMPTS)}{_TREE}|{_HANDED}{_TREE}|{FENCES}\d+-[0-9a-f]+")
_LOOKS_MAX = 20  # Times that the remote may change while it is looked at.
_CLOSE_SECONDS = 20.0  # For what is done when an attempt has ended; somebody may be waiting for the end of the host.


@dataclass(kw_only=True)
class SharedNames:
    """The names of one project at its remote."""

    git: Git
    remote: Remote
    target_name: str
    _brings: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)  # Two at a time disturb each other.

    async def bring(self, *, first: bool = False, at_once: bool = False) -> None:
        """Bring what the remote has. `first`: if it has no target yet, it gets the one that is here."""
        if at_once and self._brings.locked():
            return
        async with self._brings:
            await self._bring(self.remote.at_once(_CLOSE_SECONDS) if at_once else self.remote, first)

    async def _bring(self, remote: Remote, first: bool) -> None:
        for _ in range(_LOOKS_MAX):
            ours = await self.git.commit_of(self.target_name)  # Before the look: the remote cannot be behind it.
            here = await self._copies()
            there = await self._look(remote, {*here, *([self.target_name] if ours else ())})
            if missing := [name for name, at in there.items() if not await self._has(at)]:
                await remote.fetch(self.git, missing)
                if not all([await self._has(there[name]) for name in missing]):
                    continue  # A name has moved meanwhile.
            if await self._take(there, here, ours, first):
                return
        raise GitTrouble(f"{self.remote.url} keeps changing while it is looked at; stop changing it for a while.")

    async def _copies(self) -> dict[str, str]:
        listed = await self.git.run("for-each-ref", "--format=%(refname) %(objectname)", COPIES)
        return dict(line.split() for line in listed.text.splitlines())

    async def _look(self, remote: Remote, known: set[str]) -> dict[str, str]:
        """What the remote has. Its answer may lack a name that is just being moved there, so a known name is gone only
        if it is missing twice."""
        there: dict[str, str] = {}
        for _ in range(2):
            found = await remote.look(self.git, self.target_name, f"{_ATTEMPTS}*", f"{FENCES}*", f"{_HANDED}*")
            there |= {name: at for name, at in found.items() if name == self.target_name or _NAME.fullmatch(name)}
            if not known - {self.target_name if name == self.target_name else _copy_of(name) for name in there}:
                break
        return there

    async def _has(self, thing: str) -> bool:
        return (await self.git.run("cat-file", "-e", thing, may_fail=True)).code == 0

    async def _take(self, there: dict[str, str], here: dict[str, str], ours: str | None, first: bool) -> bool:
        """Have the names here stand for what they stand for there. False: look again."""
        theirs = there.pop(self.target_name, None)
        if theirs is None:
            return await self._without_target(ours, first)
        if ours is not None and not await self.git.is_in(ours, theirs):
            branch = self.target_name.removeprefix("refs/heads/")
            raise GitTrouble(
                f"{branch} was rewritten at {self.remote.url}: it lacks {ours[:12]}, which is here. To put it back: "
                f"`git push --force {pasted(self.remote.url)} {ours}:{self.target_name}`; if it was meant: "
                f"`git branch --force {pasted(branch)} {theirs}` in each clone."
            )
        moves = [(self.target_name, ours or "", theirs)] if ours != theirs else []
        wanted = {_copy_of(name): at for name, at in there.items()}
        names = sorted({*wanted, *here})
        moves += [
            (each, here.get(each, ""), wanted.get(each, "")) for each in names if here.get(each) != wanted.get(each)
        ]
        return not moves or await self.git.move_when_free(moves)

    async def _without_target(self, ours: str | None, first: bool) -> bool:
        branch = self.target_name.removeprefix("refs/heads/")
        if ours is None:
            return True
        if not first:
            raise GitTrouble(
                f"{branch} is gone at {self.remote.url}, and finished work goes there: "
                f"`git push {pasted(self.remote.url)} {pasted(branch)}` brings it back."
            )
        await self.remote.push(self.git, [(self.target_name, "", ours)])
        return False

    async def move_target(self, old: str, new: str) -> bool:
        """Move the target there, then here. False: it stands elsewhere by now."""
        if not await self.remote.push(self.git, [(self.target_name, old, new)]):
            await self.bring()
            return False
        return await self.git.move_when_free([(self.target_name, old, new)])

    async def begin(self, mark: str, epoch: int) -> None:
        """From now on, no earlier attempt at the task can land. StaleClaim: there is a later one."""
        name, ours, now = FENCES + mark, await self.git.blob(f"{epoch}\n"), ""
        while now != ours and not await self.remote.push(self.git, [(name, now, ours)]):
            await self.bring()
            now = await self.git.object_of(_copy_of(name))
            if (there := await self._epoch(now)) > epoch:
                raise StaleClaim
            if there == epoch:
                break  # It landed already.

    async def _epoch(self, fence: str) -> int:
        """The epoch that a fence names; 0: there is no fence."""
        said = re.match(r"(\d{1,18})\s", await self.git.content(fence) or "") if fence else None
        return int(said[1]) if said else 0

    async def keep(self, branch: str, tip: str, *, at_once: bool = False) -> None:
        """Have the work of an attempt there, so that it outlives this machine. Only its holder pushes this branch."""
        remote = self.remote.at_once(_CLOSE_SECONDS) if at_once else self.remote
        known = await self.git.object_of(_copy_of(branch))
        if known == tip:
            return
        if not await remote.push(self.git, [(branch, known, tip)]):
            at = (await remote.look(self.git, branch)).get(branch, "")
            if not await remote.push(self.git, [(branch, at, tip)]):
                raise GitTrouble(f"{branch} is pushed to {remote.url} by somebody else; leave it to the team.")
        await self.git.move([(_copy_of(branch), known, tip)])

    async def hand_on(self, tree: Tree, author: str) -> None:
        """Have there all that an attempt leaves in its tree. Nothing is done in the tree after that. If it fails, only
        this machine has it all; nobody has, if the tree lacks work."""
        if tree.lacks_work:
            return
        with suppress(GitTrouble):
            await tree.clear_up()
            tip = await tree.commit("Work until here", author)
            await self.remote.at_once(_CLOSE_SECONDS).push(self.git, [(_HANDED + tree.attempt.name, "", tip)])

    async def land(self, fence_name: str, fence: str, head: str, commit: str) -> bool:
        """The one step: the target moves to a commit, and the fence says so. False: the target has moved meanwhile.
        StaleClaim: the fence is a later attempt's, or gone with the task."""
        epoch, known = await self._epoch(fence), await self.git.object_of(_copy_of(fence_name))
        if await self._epoch(known) == epoch:
            fence = known  # An earlier push of ours may have changed it, and not the target.
        landed = await self.git.blob(f"{epoch} {commit}\n")
        moves = [(self.target_name, head, commit), (fence_name, fence, landed)]
        if await self.remote.push(self.git, moves):
            await self.git.move_when_free([(self.target_name, head, commit)])
            return True
        await self.bring()
        if await self._epoch(await self.git.object_of(_copy_of(fence_name))) != epoch:
            raise StaleClaim
        return False

    async def forget(self, mark: str, *, branches: bool = True) -> None:
        """Delete what the remote has of a task that has ended. What cannot be deleted now, a later sweep deletes."""
        remote = self.remote.at_once(_CLOSE_SECONDS)
        names = [FENCES + mark, f"{_HANDED}{mark}.*", *([f"{_ATTEMPTS}{mark}.*"] if branches else ())]
        left = await remote.look(self.git, *names)
        if not left or await remote.push(self.git, [(name, at, "") for name, at in left.items()]):
            copies = {name: await self.git.object_of(name) for name in map(_copy_of, left)}
            if moves := [(name, at, "") for name, at in copies.items() if at]:
                await self.git.move(moves)


def _copy_of(name: str) -> str:
    return COPIES + name.removeprefix("refs/").removeprefix("heads/").removeprefix("dugnad/")


def copied_branch(name: str) -> str:
    """The copy of the branch of the tree that has this name."""
    return f"{COPIES}task-{name}"


def handed_on(attempt: str) -> str:
    """The copy of what an attempt left."""
    return f"{COPIES}handed/{attempt}"
