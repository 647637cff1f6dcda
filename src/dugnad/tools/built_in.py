"""The built-in tools, and who is offered them."""

from __future__ import annotations

from .finish_tools import finish, give_up
from .former_tools import (
    add_task,
    approve_plan,
    broadcast,
    claim_task,
    consult,
    delegate,
    idle,
    read_inbox,
    read_notes,
    release,
    schedule_followup,
    search_notes,
    todo,
)
from .lead_tools import assign, compact, shutdown_teammate, spawn_teammate
from .message_tools import ask_human, respond, send_message, submit_plan
from .note_tools import note, notes, read_output
from .skills import use_skill
from .task_tools import add_tasks, list_tasks, show_task, wait_for
from .teammates import list_teammates
from .tool import Tool

# What can be called. Former tools are not offered.
BUILT_IN: tuple[Tool, ...] = (
    add_tasks, list_tasks, show_task, wait_for, finish, give_up,
    ask_human, submit_plan, send_message, respond, list_teammates,
    note, notes, read_output, use_skill,
    schedule_followup, add_task, delegate, todo, release, idle, claim_task, broadcast, read_inbox, read_notes,
    search_notes, consult, compact,
)  # fmt: skip

# Besides, for a lead.
LEADING: tuple[Tool, ...] = (spawn_teammate, shutdown_teammate, assign, approve_plan)

# Besides, where there is a tree to work in.
OF_A_TREE = (
    "read_file", "list_dir", "glob", "grep", "write_file", "edit_file", "bash", "jobs", "run_check", "update_tree",
)  # fmt: skip

# What a consulted mind may use: it looks, and changes nothing.
READING: tuple[Tool, ...] = (list_tasks, show_task, notes, list_teammates, use_skill)
