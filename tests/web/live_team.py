"""A scripted team that works while a page watches, and that needs a person at several points."""

from __future__ import annotations

from dugnad.models.scripted import Step
from tests.agent.stage_agent import call
from tests.team.stage_team import Paused

GOAL = "Build the pier"
PLANKS = "Cut the planks"
PAINT = "Paint the pier"
ROPES = "Splice the ropes"
LAMPS = "Hang the lamps"

SCRIPT = {
    GOAL: [
        call(
            "add_tasks",
            tasks=[
                {"title": PLANKS, "body": "For ten metres.", "label": "planks"},
                {"title": PAINT, "body": "White.", "needs": ["planks"]},
            ],
        ),
        call("finish", result="Two tasks will build it."),
    ],
    PLANKS: [
        call("ask_human", question="Oak or pine?"),
        call("finish", result="The planks are cut."),
    ],
    PAINT: [call("finish", result="The pier is white.")],
    ROPES: [
        call("submit_plan", plan="1. Wash them.\n2. Splice them."),
        call("finish", result="The ropes are spliced."),
    ],
    LAMPS: [call("give_up", reason="The lamps are broken.")],
    "*": [Step(say="I did as you said.")],
}


def team_model(*, held: str | None = None) -> Paused:
    """The model of all teammates. With a title, it thinks about that task until it is let go."""
    return Paused(SCRIPT, where=lambda request: held is not None and request.title == held)
