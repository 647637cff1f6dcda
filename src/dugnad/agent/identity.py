"""Who the teammate is: rendered fresh into every request, whatever was compacted. Pure.

The system text holds what stays the same for the whole task, so that providers can cache it; where the teammate stands
comes last in each request, and stays there.
"""

from __future__ import annotations

from ..prompts import tell
from ..text import Told, joined, persons
from ..tools.skills import Skill, skills_text
from ..tools.task_tools import budget_line
from ..types import Claim, Spending, Teammate


def identity(teammate: Teammate, claim: Claim, team: str) -> Told:
    """Name, role, team and task, in one paragraph."""
    task = claim.task
    roles = ", ".join(teammate.roles) or "any work"
    name = tell("teammate.name", name=teammate.name, team=team, roles=roles)
    lead = tell("teammate.lead") if teammate.lead else None
    return joined((name, lead, tell("teammate.task", task=task.id, title=task.title, root=task.root)), " ")


def system_text(teammate: Teammate, claim: Claim, team: str, skills: tuple[Skill, ...] = ()) -> Told:
    listed = tell("teammate.skills", skills=skills_text(skills)) if skills else None
    return joined((identity(teammate, claim, team), persons(teammate.prompt), tell("teammate.rules"), listed))


def standing(teammate: Teammate, claim: Claim, turn: int, turns_max: int, spending: Spending) -> Told:
    """Where the teammate stands, at the end of every request."""
    return tell(
        "teammate.standing", name=teammate.name, task=claim.task.id, attempt=claim.number, turn=turn, most=turns_max,
        budget=budget_line(spending),
    )  # fmt: skip
