"""The commands about teammates, and the messages between them and the human."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from ..errors import BadInput
from ..text import counted, plain
from ..types import HUMAN, Message
from ..view.json import message_shape, shape_of
from .command import CommandContext, text_or_stdin, verb
from .parameters import RequestId, TeammateName
from .tasks import all_pages, collect

_NO_HOST = "No host is running; `dugnad run` or `dugnad work` starts one."


@verb("team", only_reads=True, example="dugnad team")
async def team(call: CommandContext) -> None:
    """List the teammates, with their roles, and what each is doing."""
    members, hosts = await call.board.team(), await call.board.hosts()
    held = await collect(call.board, 10**9, states=["claimed", "waiting"])

    def picture() -> Any:
        from ..view.tables import team_table

        alive = sum(host.alive for host in hosts)
        below = f"{counted(alive, 'host')} running." if alive else _NO_HOST
        if not members:
            return Text(f"The team has no teammates yet; `dugnad spawn alice --role coder` adds one. {below}")
        return Group(team_table(members, held), Text(f"\n{below}", style="dim"))

    teammates = [
        {**shape_of(member), "holds": [task.id for task in held if task.teammate == member.name]} for member in members
    ]
    call.answer({"teammates": teammates, "hosts": [*map(shape_of, hosts)]}, picture)


@verb("spawn", makes_board=True, example="""
    dugnad spawn alice --role coder
    dugnad spawn rita --role reviewer --prompt "You look for what can break." --plan
    """)  # fmt: skip
@click.argument("name")
@click.option(
    "--role", "roles", multiple=True, help="Roles whose tasks it may claim; may be repeated. Default: any task."
)
@click.option("--prompt", default="", callback=text_or_stdin, help="Its instructions; - reads standard input.")
@click.option("--model", default="", help="provider:model. Default: the team's model.")
@click.option("--lead", is_flag=True, help="Make it a lead: it may spawn, stop and approve.")
@click.option("--plan", is_flag=True, help="It may only read until its plan for a task is approved.")
@click.option("--keep-context", is_flag=True, help="Its conversation goes on from task to task, as a lead's does.")
async def spawn(call: CommandContext, *, name: str, roles: tuple[str, ...], **settings: Any) -> None:
    """Add a teammate. It joins at once if a host is running, or else with the next `dugnad run` or `dugnad work`."""
    teammate = await call.board.spawn(name, roles=_split(roles), **settings)
    alive = any(host.alive for host in await call.board.hosts())
    joins = "is joining" if alive else "will join when a host starts (`dugnad run` or `dugnad work`)"
    said = joins if teammate.status == "wanted" else f"is {teammate.status}"
    call.answer({"teammate": shape_of(teammate)}, f"{teammate.name} {said}.")


def _split(given: Iterable[str]) -> list[str]:
    """Roles in the order given, each once."""
    return list(dict.fromkeys(each.strip() for part in given for each in part.split(",") if each.strip()))


@verb("stop", example="""
    dugnad stop alice --why "the work is done"
    dugnad stop alice --now
    """)  # fmt: skip
@click.argument("name", type=TeammateName())
@click.option("--why", default="", help="The reason; the teammate is told.")
@click.option("--now", is_flag=True, help="Stop it without asking.")
async def stop(call: CommandContext, *, name: str, why: str, now: bool) -> None:
    """Ask a teammate to shut down. It finishes its task or gives it back."""
    from ..team import requests

    said = await requests.stop(call.board, name, why=why, now=now)
    teammate = await call.board.teammate(name)
    call.answer({"teammate": shape_of(teammate), "said": said}, plain(said))


@verb("tell", example='dugnad tell alice "Please use the new client."')
@click.argument("name", type=TeammateName())
@click.argument("text", callback=text_or_stdin)
async def tell(call: CommandContext, *, name: str, text: str) -> None:
    """Send a teammate a message; `-` reads it from standard input. The teammate sees it with its next turn."""
    message = await call.board.tell(HUMAN, name, _something(text))
    call.answer({"message": message_shape(message)}, f"m{message.id} is in {message.recipient}'s inbox.")


def _something(text: str) -> str:
    if not text.strip():
        raise BadInput("The text is empty; write a text.")
    return text


@verb("inbox", only_reads=True, example="""
    dugnad inbox
    dugnad inbox alice --all
    """)  # fmt: skip
@click.argument("name", required=False, default=HUMAN, type=TeammateName())
@click.option("--keep", is_flag=True, help="Do not mark the messages as read.")
@click.option("--all", "everything", is_flag=True, help="Also show messages that were read before.")
async def inbox(call: CommandContext, *, name: str, keep: bool, everything: bool) -> None:
    """Read messages and questions from the team.

    A message to you is shown once. A question or a plan is shown until you answer it. With NAME, the inbox of that
    teammate is shown, and nothing is marked as read.
    """
    from ..team.requests import waiting_requests

    if name != HUMAN:
        await call.board.teammate(name)
    waiting = await (waiting_requests(call.board) if name == HUMAN else call.board.requests(name))
    open_ids = {message.id for message in waiting}
    found = await all_pages(partial(call.board.inbox, name, queued=not everything, page=1_000), "id")
    messages = [each for each in found if each.id not in open_ids and (everything or not _asks(each))]

    def picture() -> Any:
        from ..view.tables import messages_table

        if not messages and not waiting:
            return Text("The inbox is empty.")
        said = [messages_table(messages)] if messages else []
        if not waiting:
            return Group(*said)
        head = Text("\nThese wait for an answer:" if messages else "These wait for an answer:", style="bold yellow")
        return Group(*said, head, messages_table(waiting, waiting=open_ids))

    call.answer({"messages": [*map(message_shape, messages)], "requests": [*map(message_shape, waiting)]}, picture)
    if name == HUMAN and not keep:  # After printing: what could not be printed is shown again.
        await call.board.show(HUMAN, [each.id for each in found if each.shown_at is None and each.id not in open_ids])


def _asks(message: Message) -> bool:
    return message.kind in ("question", "plan", "shutdown")


@verb("answer", example="""
    dugnad answer 12 "Yes, go on."
    dugnad answer m34 "The second one."
    dugnad answer m35 yes
    """)  # fmt: skip
@click.argument("which", metavar="ID", type=RequestId())
@click.argument("text", callback=text_or_stdin)
async def answer(call: CommandContext, *, which: str, text: str) -> None:
    """Answer the question of a waiting task (12) or of a message (m34). The task then goes on."""
    from ..team import requests

    await _said(call, await requests.answer(call.board, which, _something(text)))


@verb("approve", example="""
    dugnad approve 12
    dugnad approve m34 "And mind the tests."
    """)  # fmt: skip
@click.argument("which", metavar="ID", type=RequestId())
@click.argument("text", required=False, default="", callback=text_or_stdin)
async def approve(call: CommandContext, *, which: str, text: str) -> None:
    """Approve a plan, or a tool call that waits for you. TEXT is an optional comment."""
    from ..team import requests

    await _said(call, await requests.decide_plan(call.board, which, accept=True, why=text))


@verb("reject", example='dugnad reject 12 --why "Not without a migration."')
@click.argument("which", metavar="ID", type=RequestId())
@click.option("--why", required=True, help="What to change.")
async def reject(call: CommandContext, *, which: str, why: str) -> None:
    """Reject a plan, or refuse a tool call, with the reason."""
    from ..team import requests

    await _said(call, await requests.decide_plan(call.board, which, accept=False, why=_something(why)))


async def _said(call: CommandContext, message: Message) -> None:
    from ..team.requests import taken_as

    taken = await taken_as(call.board, message)
    about = f", and #{message.task} goes on" if message.task is not None else ""
    alive = any(host.alive for host in await call.board.hosts())
    hint = "" if alive else f" {_NO_HOST}"
    call.answer({"message": message_shape(message)}, f"{taken}{message.recipient} is told{about}.{hint}")
