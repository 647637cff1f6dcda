"""A git tree for each attempt, and a merge before a task counts as done."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...board import Board
from ...errors import DugnadError, StaleClaim, ToolError
from ...prompts import tell
from ...text import NOTHING, Told, clean, counted, joined, one_line, pasted, shorten
from ...tools.context import Context
from ...tools.tool import Tool
from ...types import ENDED, Attempt, Claim, Done, Failed, Outcome, Task
from ...workspace.files.files import is_protected
from ...workspace.git import merge_queue
from ...workspace.git.merge_queue import Conflict, Merged, RedAfterMerge, Work
from ...workspace.git.merging import TrialMerge, came_between
from ...workspace.git.triggers import named_triggers, triggers
from ...workspace.git.worktree import AttemptRef, Tree
from ...workspace.git.worktrees import Trees
from ..report import Deliveries
from .merge_turns import MergeTurns
from .workspace import (
    Again,
    RedCheck,
    TreeWorkspace,
    Workshop,
    Workspace,
    commands_told,
    continues,
    delivered,
    line_of,
    mark_of,
)

_SHOWN_MAX = 20
_DIFF_LINES_MAX, _DIFF_CHARS_MAX = 300, 16_000  # A larger diff is not shown to a reviewer at once.


@dataclass(kw_only=True)
class Worktrees:
    """Opens the workspaces of attempts: called with a claim, it gives the tree of that attempt."""

    board: Board
    trees: Trees
    shop: Workshop
    own_branch: str | None = None  # The branch of the person's checkout, which the target is compared with.
    waits: str = ""  # What a merge of ours has been waiting for.

    def __post_init__(self) -> None:
        self.trees.on_wait = self._note_wait
        self.trees.git = replace(self.trees.git, tell=self._note_wait)
        if self.trees.shared is not None:
            self.trees.shared.git = self.trees.git

    def _note_wait(self, told: str) -> None:
        self.waits = told

    def turns(self) -> MergeTurns | None:
        """The turns of all machines, if others merge into the same target."""
        shared, target = self.trees.shared, self.trees.target
        return None if shared is None else MergeTurns(board=self.board, target=target, tell=self._note_wait)

    async def __call__(self, claim: Claim, attempts: Sequence[Attempt]) -> Workspace:
        task = claim.task
        born, in_order = line_of(claim, attempts)
        await self.trees.claimed(None if task.kind == "review" else mark_of(task), claim.epoch)
        at, trial = await self.trees.would_be(task.reviews_commit) if task.reviews_commit else (None, None)
        attempt = AttemptRef(
            mark=mark_of(task), epoch=claim.epoch, born=born, before=claim.continues or 0, in_order=in_order, at=at,
            authors={each.epoch: each.teammate for each in attempts},
        )  # fmt: skip
        tree = await self.trees.begin(attempt)
        return Worktree(
            owner=self, work=tree, reviews=task.kind == "review", anew=tree.anew or tree.older, sees_changes=True,
            **self.shop.equipped(
                claim, tree.path, tree.scratch, readable=tree.readable, told=await self._told(claim, tree, trial)
            ),
        )  # fmt: skip

    async def _told(self, claim: Claim, tree: Tree, trial: TrialMerge | None) -> Told:
        """What the mind must know about the tree. What the first attempt of the line was told is not said again."""
        if tree.anew:
            return tell("delivery.tree_made_anew")
        if tree.carried_over:
            told = await self._carried_over(tree)
            return joined((tell("delivery.tree_older"), told), " ") if tree.older else told
        if claim.continues is not None:
            return NOTHING if trial else await self._moved(tree)
        here = await (self._reviewing(claim, tree, trial) if trial else self._working(tree))
        prefix = self.shop.prefix
        project = tell("delivery.project_in_tree", where=prefix) if prefix.parts else None
        names = [] if trial else await asyncio.to_thread(_top_of, tree.path / prefix)
        holds = tell("delivery.holds", names=_named(names)) if names else None
        return joined((here, project, holds), " ")

    async def _working(self, tree: Tree) -> Told:
        return tell("delivery.tree", target=self.trees.target, base=(await tree.head())[:12])

    async def _reviewing(self, claim: Claim, tree: Tree, trial: TrialMerge) -> Told:
        target = self.trees.target
        if trial.files:
            return tell("delivery.reviewing_conflict", target=target, files=_named(trial.files), base=trial.base[:12])
        tip = await tree.head()
        files, added, removed = await tree.git.change_size(trial.head, tip)
        told = tell(
            "delivery.reviewing_merge", target=target, head=trial.head[:12], files=counted(files, "file"),
            added=counted(added, "line"), removed=counted(removed, "line"),
        )  # fmt: skip
        before, commit = await self._reviewed_before(claim)
        diff = await self._small_diff(tree, *((commit, trial.tip) if before else (trial.head, tip)))
        if not diff:
            return told
        shown = tell("delivery.diff_since", id=before, diff=diff) if before else tell("delivery.diff", diff=diff)
        return joined((told, shown), "\n")

    async def _small_diff(self, tree: Tree, base: str, tip: str) -> str:
        """What differs, if that is short enough to be shown."""
        _, added, removed = await tree.git.change_size(base, tip)
        diff = await tree.git.diff(base, tip) if added + removed <= _DIFF_LINES_MAX else ""
        return clean(diff.rstrip("\n")) if len(diff) <= _DIFF_CHARS_MAX else ""

    async def _reviewed_before(self, claim: Claim) -> tuple[int, str]:
        """The review of the same work that stands in this mind's conversation already, and the commit it was about."""
        last = (await self.board.find_all({claim.follows})).get(claim.follows) if claim.follows else None
        if last is None or last.reviews != claim.task.reviews or not last.reviews_commit:
            return 0, ""
        return (last.id, last.reviews_commit) if await self.trees.git.commit_of(last.reviews_commit) else (0, "")

    async def _carried_over(self, tree: Tree) -> Told:
        """After a lost host: which files are there, and whether the target has moved."""
        paths = await tree.git.changed_paths(self.trees.target_name, await tree.head())
        what = f"{counted(len(paths), 'file')}, {_named(paths)}" if paths else "nothing"
        stayed = tell("delivery.target_stayed", target=self.trees.target)
        return joined((tell("delivery.tree_carried_over", what=what), await self._moved(tree) or stayed), " ")

    async def _moved(self, tree: Tree) -> Told:
        """That the target has what the tree lacks, if so."""
        between = f"{await tree.head()}..{self.trees.target_name}"
        moved = int((await tree.git.run("rev-list", "--count", between)).text)
        commits = counted(moved, "commit")
        return tell("delivery.target_moved", target=self.trees.target, commits=commits) if moved else NOTHING

    async def deliveries(self, tasks: Sequence[Task]) -> Deliveries:
        """What these tasks left in the repository."""
        with suppress(ToolError):
            await self.trees.bring(at_once=True)
        git, target = self.trees.git, self.trees.target_name
        own = f"refs/heads/{self.own_branch}" if self.own_branch else await git.own_head() or "HEAD"
        ahead = await git.run("rev-list", "--count", f"{own}..{target}", may_fail=True)
        kept: dict[int, list[str]] = {}
        marks = {mark_of(task): task for task in tasks if task.state != "done"}
        for branch in await self.trees.branches():
            if (task := marks.get(branch.rpartition("task-")[2].rpartition(".")[0])) is not None:
                kept.setdefault(task.id, []).append(branch)
        commits = int(ahead.text.strip() or 0)
        runs = triggers(await git.changed_paths(own, target)) if commits else {}
        return Deliveries(target=self.trees.target, commits=commits, kept=kept, runs=runs)

    async def sweep(self) -> None:
        """Remove what a crash left of tasks that have ended."""
        ended: dict[str, bool] = {}
        for mark in await self.trees.marks():
            number = int(mark.partition("-")[0])
            found = (await self.board.find_all({number})).get(number)
            if found is not None and mark_of(found) == mark and found.state in ENDED:
                ended[mark] = found.state != "done"
        await self.trees.sweep(ended.get)


@dataclass(kw_only=True)
class Worktree(TreeWorkspace):
    owner: Worktrees
    work: Tree

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.reviews:
            self.tools = (*self.tools, Tool(self.update_tree, prompt="update_tree", keyed=True))
            self.offers = tell("delivery.updates", target=self.owner.trees.target) if self.told else NOTHING

    async def check(self, task: Task) -> RedCheck | None:
        async with self._paid():
            return await super().check(task)

    @asynccontextmanager
    async def _paid(self) -> AsyncIterator[None]:
        """The goal pays for git's time, as it does for that of a check."""
        self.work.took()  # What came before was paid for, as part of a tool call.
        try:
            yield
        finally:
            await self.shop.pay(self.claim, self.work.took())

    async def run_checks(self, task: Task) -> RedCheck | None:
        await self._be_sure_it_is_resolved()
        # The project's own checks say something only about changes.
        if not self.checks(task) or not (task.check or await self._is_changed()):
            return None
        return await super().run_checks(task)

    @asynccontextmanager
    async def checking(self) -> AsyncIterator[None]:
        await self._be_sure_it_is_resolved()
        async with self.work.checking():
            yield

    async def _be_sure_it_is_resolved(self) -> None:
        """ToolError: files still have the marks of a conflict, which must never be merged."""
        if marked := await self.work.unresolved(self.owner.trees.target_name):
            raise ToolError(tell("delivery.unresolved", files=_named(marked)))

    async def update_tree(self, context: Context) -> str:
        self.must_be_quiet()
        trial = await self.owner.trees.update(self.work, self.claim.teammate)
        target, marked = self.owner.trees.target, await self.work.unresolved(self.owner.trees.target_name)
        if trial is None:
            same = tell("delivery.target_is_in", target=target, shown=pasted(target))
            return joined((same, tell("delivery.unresolved", files=_named(marked)) if marked else None), " ")
        return await self._brought_in(trial)

    async def _brought_in(self, trial: TrialMerge) -> Told:
        """What the mind is told when the target was brought into its tree."""
        others = "\n".join(map(clean, await came_between(self.work.git, trial, trial.files)))
        told = tell("delivery.target_brought_in", target=self.owner.trees.target, head=trial.head[:12], others=others)
        if not trial.files:
            return told
        said = clean("\n".join(trial.said))
        marked = tell("delivery.marked", files=_named(trial.files), target=self.owner.trees.target, said=said)
        return joined((told, marked), "\n")

    async def _is_changed(self) -> bool:
        target = self.owner.trees.target_name
        return await self.work.changed() or await self.work.is_ahead(target, await self.work.head())

    async def commit(self, task: Task, done: Done) -> str | None:
        if self.reviews:
            return None
        async with self._paid():
            tip = await self.work.commit(_message(task, done), self.claim.teammate)
        self.work.hold()  # Its mind has looked at what is there.
        return tip if await self.work.is_ahead(self.owner.trees.target_name, tip) else None

    async def changed(self, tip: str) -> Mapping[str, int]:
        found = await self.work.git.changed_lines(self.owner.trees.target_name, tip)
        inside = "" if self.shop.prefix == Path() else f"{self.shop.prefix}/"
        return {path.removeprefix(inside): lines for path, lines in found.items()}

    async def triggers(self, tip: str) -> Mapping[str, str]:
        return triggers(await self.work.git.changed_paths(self.owner.trees.target_name, tip))

    async def _work(self, task: Task, done: Done, tip: str) -> Work:
        # The author did the work; another teammate may deliver it.
        return Work(tip=tip, message=_message(task, done), author=await self.work.author_of(tip))

    async def fits(self, task: Task, done: Done, tip: str, *, left: int) -> Told | Again:
        await self.owner.trees.keep(self.work, tip)  # Before the board hears that it is done.
        work = await self._work(task, done, tip)
        came = await merge_queue.rehearse(self.owner.trees, self.work, work, check=lambda: self._check_all(task))
        if not isinstance(came, TrialMerge):
            return await self._again(came, work, left)
        target, checks = self.owner.trees.target, commands_told(self.checks(task))
        return (
            tell("delivery.checked_there", commands=checks, target=target, head=came.head[:12]) if checks else NOTHING
        )

    async def deliver(self, task: Task, done: Done, tip: str | None, *, left: int) -> Done | Again:
        if tip is None:
            return delivered(done)
        await self.owner.trees.keep(self.work, tip)
        runs = await self.triggers(tip)
        work = await self._work(task, done, tip)
        turns = self.owner.turns()
        came = await merge_queue.merge(
            self.owner.trees, self.work, work, check=lambda: self._check_all(task), is_ours=self._is_ours,
            wait=None if turns is None else lambda: turns.wait(self.claim),
        )  # fmt: skip
        if isinstance(came, Merged):
            target, named = self.owner.trees.target, named_triggers(runs) or None
            return delivered(done, merged_into=target, merged_as=came.commit, triggers=named)
        if turns is not None:
            await turns.leave(self.claim)
        return await self._again(came, work, left)

    async def _again(self, came: Conflict | RedAfterMerge, work: Work, left: int) -> Again:
        """Bring the target into the tree, so that the author can go on there. If the mind is not asked again, the work
        stays as it is; a conflict is nobody's fault, so the mind is always asked again."""
        target = self.owner.trees.target
        if isinstance(came, Conflict):
            end, told = None, tell("delivery.conflict", target=target)
            tries = tell("delivery.no_failed_try", left=counted(left + 1, "more time"))
        else:
            end = self._red(came)
            if not left:
                return Again(NOTHING, end)
            told = tell("delivery.red_together", target=target, output=shorten(came.output, 6_000))
            tries = tell("delivery.finishes_left", left=counted(left, "more time"))
        trial = await self.owner.trees.update(self.work, work.author)
        brought = await self._brought_in(trial) if trial is not None else None
        return Again(joined((told, brought, joined((tell("delivery.finish_again"), tries), " ")), "\n"), end)

    def _red(self, came: RedAfterMerge) -> Failed:
        target, branch = self.owner.trees.target, self.work.branch.removeprefix("refs/heads/")
        others = "\n".join(f"  {one_line(clean(each), 100)}" for each in came.others)
        return Failed(
            f"The work was not merged: merged into {target} as it is now, its check is red:\n"
            f"{shorten(came.output, 4_000)}\nThese were merged since it began:\n{others}\n"
            f"The work is on branch {branch} (`git diff {pasted(f'{target}...{branch}')}`); do it again on what the "
            "target has now.", retry=True,
        )  # fmt: skip

    async def _check_all(self, task: Task) -> str | None:
        red = await self.shop.check(self.checks(task), self.tree, self.claim, readable=self.readable)
        return None if red is None else f"`{red.command}` printed:\n{red.output}"

    async def _is_ours(self) -> None:
        if (await self.owner.board.find(self.claim.task.id)).epoch != self.claim.epoch:
            raise StaleClaim

    async def _note_replies(self) -> None:
        """A mind that replied was told what its tree lacks, and goes on from what is there."""
        if self.work.lacks_work:
            with suppress(DugnadError):  # The next mind is told, too.
                turns = await self.owner.board.transcript(self.claim.task.id, self.claim.epoch)
                if any(each.kind == "reply" for each in turns):
                    self.work.hold()

    async def close(self, outcome: Outcome, *, settled: bool) -> None:
        trees = self.owner.trees
        await super().close(outcome, settled=settled)
        try:
            if continues(outcome) or (isinstance(outcome, Done) and not settled and not self.reviews):
                if trees.shared is not None and not self.reviews:
                    await self._note_replies()
                    await trees.shared.hand_on(self.work, self.claim.teammate)
                self.work.let_go()
            elif self.reviews:
                await trees.remove(self.work)
            elif not isinstance(outcome, Done):
                await trees.put_away(self.work, keep=True)
            else:
                await trees.remove(self.work)
                await trees.forget(self.work.attempt.mark)
        except (ToolError, OSError):
            self.work.let_go()  # The next sweep removes it.


def _top_of(folder: Path) -> list[str]:
    """The names in a folder, folders with a slash; git's and our own are left out."""
    try:
        with os.scandir(folder) as entries:
            found = [f"{each.name}/" if each.is_dir(follow_symlinks=False) else each.name for each in entries]
    except OSError:
        return []
    return sorted(name for name in found if not is_protected(name.rstrip("/")))


def _named(files: Sequence[str]) -> str:
    more = f" and {len(files) - _SHOWN_MAX} more" if len(files) > _SHOWN_MAX else ""
    return ", ".join(one_line(clean(each), 200) for each in files[:_SHOWN_MAX]) + more


def _message(task: Task, done: Done) -> str:
    said = shorten(clean(done.result), 2_000)
    return f"{one_line(clean(task.title), 100)}\n\n{said}\n\nDugnad-Task: #{task.id}"
