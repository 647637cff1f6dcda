"""The command line. Nothing heavy is imported before a command runs, so that help is instant."""

from __future__ import annotations

import atexit
import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from .command import CommandGroup, board_option, log_option, start_log

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# For each section: the verb, where its command is (module:attribute in this folder), and one line of help.
SECTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Start": (
        ("demo", "running:demo", "Watch a team work for a minute, offline."),
        ("rehearse", "rehearse:rehearse", "Estimate time and cost before you pay."),
        ("run", "running:run", "Give the team a goal and watch it work."),
        ("work", "running:work", "Run teammates for the tasks on the board."),
        ("chat", "running:chat", "Talk to the lead while the team works."),
        ("web", "web:web", "See the team work, and steer, in a browser."),
        ("mcp", "mcp_setup:mcp", "Let other agents work on the board, over MCP."),
    ),
    "The board": (
        ("add", "tasks:add", "Put a task on the board."),
        ("tasks", "tasks:tasks", "List the tasks on the board."),
        ("show", "tasks:show", "Show everything about one task."),
        ("status", "status:status", "Say whether the work goes on; for health checks."),
        ("log", "history:log", "Show what happened, one line per event."),
        ("notes", "history:notes", "Search the team's notes, or write one."),
        ("import", "backlog:import_", "Put issues or a checklist on the board."),
        ("export", "backlog:export", "Write the board as Markdown or JSON."),
    ),
    "The team": (
        ("team", "people:team", "List the teammates and what each is doing."),
        ("spawn", "people:spawn", "Add a teammate."),
        ("stop", "people:stop", "Ask a teammate to shut down."),
        ("tell", "people:tell", "Send a teammate a message."),
    ),
    "For you": (
        ("inbox", "people:inbox", "Read messages and questions from the team."),
        ("answer", "people:answer", "Answer a question."),
        ("approve", "people:approve", "Approve a plan."),
        ("reject", "people:reject", "Reject a plan, with the reason."),
    ),
    "By hand": (
        ("retry", "tasks:retry", "Open a failed or cancelled task again."),
        ("cancel", "tasks:cancel", "End a task as cancelled."),
        ("release", "tasks:release", "Take a task from its holder, for anyone to claim."),
        ("budget", "tasks:budget", "Show what a goal has spent, or change its caps."),
    ),
    "Setting up": (
        ("doctor", "about:doctor", "Check the setup, and say how to fix it."),
        ("trust", "trust:trust", "Show and accept what a project brings."),
        ("prune", "prune:prune", "Delete old history, to keep a board small."),
        ("servers", "servers:servers", "List MCP servers, and approve what they offer."),
        ("model", "about:model", "Show the window and the price of a model."),
        ("completion", "about:completion", "Print the completion script for your shell."),
    ),
}  # fmt: skip

_COMMANDS = {name: (place, what) for verbs in SECTIONS.values() for name, place, what in verbs}


class _Lazy(CommandGroup):
    """A group that imports a command when it is called. SECTIONS lists them."""

    def __call__(self, *args: Any, **extra: Any) -> Any:
        """As a program of its own. What it imports stays, so garbage is looked for less often, and not at the end."""
        gc.set_threshold(10_000)
        atexit.register(gc.freeze)
        return self.main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f".{module}", __name__), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=what) for name, (_, what) in _COMMANDS.items() if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)  # The options.

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, verbs in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, what) for name, _, what in verbs])


@click.group(
    "dugnad",
    cls=_Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`dugnad COMMAND --help` explains one command, with an example.",
)
@click.version_option(__version__, prog_name="dugnad")
@board_option
@log_option("DUGNAD_LOG")
@click.pass_context
def main(context: click.Context) -> None:
    """A team of LLM agents that finds its own work.

    The board is the first of these that is given: --board, DUGNAD_BOARD, `board` in dugnad.toml; otherwise
    .dugnad/board.db in the project's root folder. A board is sqlite:///path/to/board.db or postgresql://host/database.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    elif context.invoked_subcommand not in ("run", "work", "chat", "demo"):  # They know whether a view is drawn.
        start_log()
