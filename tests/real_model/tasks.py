"""The twenty tasks, by kind, in the three ways the model is asked."""

from __future__ import annotations

from dataclasses import dataclass

from dugnad import Budget

USUAL = Budget(tasks=60, tokens=200_000)
PAGE = "The neighbours met in the yard and painted the fence, and when it rained they moved the tables inside. "


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One task for the team."""

    kind: str
    title: str
    body: str = ""
    budget: Budget = USUAL
    after: str | None = None  # The title of a task it needs.


# The model's own template, which does not mention tools: plain questions, long texts, small budgets.
PLAIN = (
    Asked(kind="question", title="What is the capital of Norway?"),
    Asked(kind="question", title="Name three colours."),
    Asked(kind="question", title="How many legs has a spider?"),
    Asked(kind="question", title="Say hello in French."),
    Asked(kind="question", title="What is two and two?"),
    Asked(kind="dependent", title="Say it in one word", after="What is the capital of Norway?"),
    Asked(kind="long", title="What did the neighbours paint?", body=PAGE * 70),
    Asked(kind="long", title="Sum up this report", body=PAGE * 90),
    Asked(kind="overflow", title="Sum up this book", body=PAGE * 600),
    Asked(kind="small budget", title="Write a long story", budget=Budget(tasks=3, tokens=500)),
)

# A template with tools, and a relay that insists on calls.
INSISTING = (
    Asked(kind="note", title="Write a note", body="Call note with the title 'fence' and the text 'green'."),
    Asked(kind="note", title="Write two notes", body="Call note twice: 'tables' and 'chairs'. Then call finish."),
    Asked(kind="finish", title="Finish at once", body="Call finish with the result 'nothing to do'."),
    Asked(kind="finish", title="Approve it", body="Call finish with the result 'fine' and the outcome 'approved'."),
    Asked(kind="follow-up", title="Plan the painting", body="Call schedule_followup with the title 'Buy paint'."),
    Asked(
        kind="follow-up, capped",
        title="Plan the party",
        body="Call schedule_followup with the title 'Invite everybody'.",
        budget=Budget(tasks=2, tokens=200_000),
    ),
    Asked(kind="ask", title="Ask the human", body="Call ask_human with the question 'Which colour?'."),
    Asked(kind="own tool", title="Read the yearbook", body="Call read_page with the page 1, then finish."),
)

# The same template without the relay: the server refuses what it cannot read as a call, and says so in its stream.
AUTO = (
    Asked(kind="unreadable", title="Say goodbye", budget=Budget(tasks=3, tokens=200_000, seconds=20)),
    Asked(kind="unreadable", title="Say thanks", budget=Budget(tasks=3, tokens=200_000, seconds=20)),
)
