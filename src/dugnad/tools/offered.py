"""Which tools a model is offered for a task, and in which order. What is not offered can still be called.

The set depends on the task's kind and on what there is to use, never on the teammate or the turn: providers cache it
for all teammates of a role.
"""

from __future__ import annotations

from collections.abc import Mapping

from .tool import Tool

WORKER = (
    "add_tasks", "list_tasks", "show_task", "wait_for", "finish", "give_up", "ask_human", "send_message", "respond",
    "note", "notes", "read_output", "read_file", "grep", "write_file", "edit_file", "bash", "jobs", "run_check",
    "update_tree",
)  # fmt: skip
REVIEWER = (
    "show_task", "finish", "give_up", "ask_human", "send_message", "respond", "note", "notes", "read_output",
    "read_file", "bash", "jobs",
)  # fmt: skip
LEAD = ("spawn_teammate", "shutdown_teammate", "list_teammates", "assign", "compact")  # Besides.
_SPARE, _SPARE_IN_A_REVIEW = ("list_tasks", "send_message", "run_check"), ("send_message", "note")


def offered(tools: Mapping[str, Tool], *, review: bool, plan: bool, lead: bool) -> tuple[Tool, ...]:
    """The tools of a worker or of a review, and all that are not built in. A tool that only some tasks need takes the
    place of one that can be done without, and that no text names."""
    names = [*(REVIEWER if review else WORKER)]
    shell = "bash" in tools
    if not shell:  # These take the places of bash and jobs.
        names += ["grep", "glob"] if review else ["list_dir", "glob"]
    extra = ["submit_plan", "glob"] if plan and shell and not review else ["submit_plan"] if plan else []
    # Before a plan is approved, bash has to wait, so grep is needed.
    spare = [*(["grep"] if shell and not plan and not review else []), *(_SPARE_IN_A_REVIEW if review else _SPARE)]
    for name in (*extra, "use_skill"):
        if name in tools:
            names.remove(spare.pop(0))
            names.append(name)
    names += LEAD if lead else ()
    others = [each.name for each in tools.values() if each.prompt is None and not each.former]
    return tuple(tools[name] for name in dict.fromkeys((*names, *others)) if name in tools)
