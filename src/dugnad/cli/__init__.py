"""The command line: a thin face. Nothing heavy is imported before a command runs, so that help is instant."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from .command import CommandGroup

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Section, then verb, where its command is (module:attribute in this folder), and what it does in a few words.
SECTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Start": (
        ("demo", "running:demo", "The whole idea in under a minute, offline."),
        ("rehearse", "rehearse:rehearse", "What a team would take, before you pay for it."),
        ("run", "running:run", "Give the team a goal and watch it work."),
        ("work", "running:work", "Run teammates only, on as many machines as you like."),
        ("chat", "running:chat", "Talk to the lead while the team works."),
    ),
    "The board": (
        ("add", "tasks:add", "Put a task on the board."),
        ("tasks", "tasks:tasks", "What is on the board."),
        ("show", "tasks:show", "All about one task."),
        ("log", "history:log", "What happened, one line per event."),
        ("notes", "history:notes", "What the team found out."),
    ),
    "The team": (
        ("team", "people:team", "Who is there, and what each is doing."),
        ("spawn", "people:spawn", "Want a teammate."),
        ("stop", "people:stop", "Ask a teammate to shut down."),
        ("tell", "people:tell", "Send a teammate a message."),
    ),
    "What waits for you": (
        ("inbox", "people:inbox", "What the team tells you and asks of you."),
        ("answer", "people:answer", "Answer a question."),
        ("approve", "people:approve", "Approve a plan."),
        ("reject", "people:reject", "Send a plan back, with the reason."),
    ),
    "By hand": (
        ("retry", "tasks:retry", "Open a failed or cancelled task again."),
        ("cancel", "tasks:cancel", "End a task."),
        ("release", "tasks:release", "Take a task from its holder."),
        ("budget", "tasks:budget", "What a goal has used of what it may; raise it."),
    ),
    "Setting up": (
        ("doctor", "doctor:doctor", "Check everything that can be set up wrong."),
        ("trust", "trust:trust", "What a project brings, and accepting it."),
        ("prune", "prune:prune", "Drop what is old, so that a board stays small."),
        ("servers", "servers:servers", "Your MCP servers, and approving what they offer."),
        ("model", "about:model", "What is known of a model: its window and its price."),
        ("completion", "about:completion", "The script that lets your shell complete commands."),
    ),
}  # fmt: skip


class _Lazy(CommandGroup):
    """Commands are imported when they are asked for; the list of them is the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for verbs in SECTIONS.values() for name, _, _ in verbs]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for verbs in SECTIONS.values():
            for name, place, _ in verbs:
                if name == cmd_name:
                    module, _, attribute = place.partition(":")
                    command: Any = getattr(import_module(f".{module}", __name__), attribute)
                    return command if isinstance(command, click.Command) else None
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        verbs = [each for section in SECTIONS.values() for each in section]
        found = [CompletionItem(name, help=what) for name, _, what in verbs if name.startswith(incomplete)]
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
    epilog="`dugnad VERB --help` shows what a verb can do, with an example.",
)
@click.version_option(__version__, prog_name="dugnad")
@click.option("--board", metavar="URL", help="sqlite:///path/to/board.db or postgresql://host/database.")
@click.pass_context
def main(context: click.Context, board: str | None) -> None:
    """A team of LLM agents that finds its own work.

    The board is found by --board, then DUGNAD_BOARD, then dugnad.toml, then .dugnad/board.db under the project's root.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
