"""What a teammate can do: board verbs as tools, `@tool` for a user's own, skills, and quoting others' words."""

from .context import Context, Desk, Ends
from .delegate_tools import consult, delegate
from .file_tools import file_tools
from .finish_tools import claim_task, finish, give_up, idle, release
from .lead_tools import approve_plan, assign, shutdown_teammate, spawn_teammate
from .message_tools import ask_human, broadcast, list_teammates, read_inbox, respond, send_message, submit_plan
from .note_tools import compact, note, read_notes, read_output, search_notes
from .policy import Policy
from .skills import Skill, find_skills, use_skill
from .task_tools import add_task, list_tasks, schedule_followup, show_task, todo
from .tool import BadCall, Tool, tool

BUILT_IN: tuple[Tool, ...] = (
    schedule_followup, add_task, list_tasks, show_task, todo,
    finish, give_up, release, idle, claim_task,
    send_message, broadcast, read_inbox, list_teammates, ask_human, submit_plan, respond,
    note, read_notes, search_notes, read_output, compact,
    consult, delegate, use_skill,
)  # fmt: skip

# Besides, for a lead.
LEADING: tuple[Tool, ...] = (spawn_teammate, shutdown_teammate, approve_plan, assign)

# Besides, where there is a tree to work in.
OF_A_TREE = ("read_file", "list_dir", "glob", "grep", "write_file", "edit_file", "bash", "jobs")

# What a consulted mind may use: it looks, and changes nothing.
READING: tuple[Tool, ...] = (list_tasks, show_task, read_notes, search_notes, list_teammates, use_skill)

__all__ = [
    "BUILT_IN", "LEADING", "OF_A_TREE", "READING", "BadCall", "Context", "Desk", "Ends", "Policy", "Skill", "Tool",
    "file_tools", "find_skills", "tool",
]  # fmt: skip
