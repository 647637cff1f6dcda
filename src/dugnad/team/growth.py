"""The size of the team: who should join while ready work waits, and when a team is of no use. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..agent.outside.mind import is_outside
from ..text import counted
from ..tools.message_tools import GONE, may_come_back
from ..types import OPEN, Task, Teammate

NAMES = (
    "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kim", "lars", "mona", "nils",
    "olga", "per", "quinn", "rosa", "sven", "tove", "uma", "vera", "willy", "ylva", "zoe",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Joins:
    """A teammate that should join. `instead_of` is one at rest that makes room."""

    name: str
    roles: tuple[str, ...]
    instead_of: str | None = None
    why: str = field(default="", compare=False)  # A part of a sentence, for the lead.


def fresh_names(taken: Iterable[str]) -> Iterable[str]:
    """Names that no teammate has, without end."""
    used = set(taken)
    round_number = 1
    while True:
        for name in NAMES:
            candidate = name if round_number == 1 else f"{name}-{round_number}"
            if candidate not in used:
                yield candidate
        round_number += 1


def joining(
    ready: Mapping[str, int], team: Sequence[Teammate], *, host: str, agents_max: int, strangers: bool = True,
    asked: bool = True, enough: int | None = None,
) -> list[Joins]:  # fmt: skip
    """Who should join this host's team, given how much work waits in each lane (`Board.ready_work`).

    A teammate at rest takes work by itself, so only work beyond that calls for more teammates. Those that rested come
    back before new ones join. Work that nobody present may take, because of its role or `not_for`, calls for a teammate
    that may, if necessary instead of another. Only such work makes a team grow that somebody named, unless the size was
    `asked` for. Without `strangers`, nobody new joins. `enough`: how many teammates the open work calls for in all.
    """
    named = not asked and any(each.named and not each.lead and _belongs(each) for each in team)
    here = [member for member in team if member.host == host or member.status == "wanted"]
    at_rest = [member for member in here if member.status in ("idle", "wanted") and not member.lead]
    # A teammate whose task waits may take the room of the very teammate that its task waits for.
    spares = [*at_rest, *(member for member in here if member.status == "waiting" and not member.lead)]
    there = [member for member in team if member.status not in GONE and not is_outside(member)]  # Clients come and go.
    unable = {lane for lane in ready if lane and not any(_may_take(member, [lane]) for member in there)}
    rested = [member for member in team if may_come_back(member)]
    barred = (name for lane in ready for name in lane.partition("!")[2].split(","))
    names = iter(fresh_names([*(member.name for member in team), *barred]))
    room = agents_max - sum(not member.lead for member in here)
    called = None if enough is None else enough - sum(not member.lead for member in there)
    joins: list[Joins] = []
    for lane, waiting in sorted(ready.items(), key=lambda each: (each[0] not in unable, -each[1])):
        role = lane.partition("!")[0]
        only_its_own = lane.startswith("@")
        nobody_can = lane in unable
        missing = waiting - sum(_may_take(member, [lane]) for member in at_rest)
        # For work that nobody can take, one teammate joins; the next look tells if more are needed.
        for _ in range(min(1, missing) if nobody_can else missing):
            again = next((member for member in rested if _may_take(member, [lane])), None)
            if again is None and (only_its_own or not strangers or (named and not nobody_can)):
                break
            if called is not None and len(joins) >= called and not nobody_can and not only_its_own:
                break
            spare = None
            if room <= 0 and strangers and not only_its_own:
                spare = next((each for each in spares if not _may_take(each, ready)), None)
                if spare is None or not nobody_can:
                    break
                spares.remove(spare)
            if again is not None:
                rested.remove(again)
            who = (again.name, again.roles) if again else (next(names), (role,) if role else ())
            joins.append(Joins(*who, spare.name if spare else None, _why(role, waiting, nobody_can)))
            room -= 1
    return joins


def _belongs(member: Teammate) -> bool:
    """Whether the teammate is there, or comes back when there is work for it."""
    return member.status not in GONE or may_come_back(member)


def _why(role: str, waiting: int, nobody_can: bool) -> str:
    for_whom = f" for {role}" if role else ""
    rest = "nobody on the team may take it" if nobody_can else "the others are at work"
    return f"{counted(waiting, 'task')}{for_whom} {'waits' if waiting == 1 else 'wait'}, and {rest}"


def _may_take(member: Teammate, lanes: Iterable[str]) -> bool:
    own = {f"@{member.name}", *member.roles} | (set() if member.lead else {""})
    parted = (lane.partition("!") for lane in lanes)
    return any(lane in own and member.name not in but.split(",") for lane, _, but in parted)


def one_chain(tasks: Sequence[Task]) -> int:
    """How many open tasks there are, if they are a single chain, for which a team is no use; else 0."""
    still_open = [task for task in tasks if task.state in OPEN]
    if len(still_open) < 3 or max(task.chain for task in still_open) + 1 < len(still_open):
        return 0
    return len(still_open)
