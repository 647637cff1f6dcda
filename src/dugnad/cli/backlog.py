"""The commands `import` and `export`: bring work along that is written down elsewhere, and write a board out."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..backlog.plan import ImportPlan, keyed, plan_import
from ..backlog.sources import BYTES_MAX, SOURCES, read_source
from ..board import rules
from ..errors import BadInput, BoardUnreachable
from ..settings import Limits
from ..text import counted, one_line
from ..types import OPEN, Need, Note, Task
from ..view.json import Shape, shape_of
from .command import CommandContext, answer, board_option, board_url, examples, here, json_option, opened, verb
from .parameters import TaskId
from .tasks import all_pages

if TYPE_CHECKING:
    from ..backlog.rows import RowsRead
    from ..board import Board

_SHOWN = 20


def _label(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        label, _, role = value.rpartition("=")
        if not label.strip():
            raise BadInput(f"{value!r} is not LABEL=ROLE; write --label bug=coder.")
        found[label.strip()] = rules.name("role", role.strip(), Limits())
    return found


@click.command("import", epilog=examples("""
    dugnad import tasks.md --dry-run
    dugnad import issues.json --label bug=coder --label docs=writer
    dugnad import backlog.csv --role coder --under 1
    dugnad import ~/.claude/tasks/my-list
    """))  # fmt: skip
@click.argument("file", type=click.Path(allow_dash=True, path_type=Path))
@click.option("--from", "source", type=click.Choice(SOURCES), help="What it is, where that is not clear.")
@click.option("--dry-run", is_flag=True, help="Read and check everything, and put nothing.")
@click.option("--role", help="The role of those that name none.")
@click.option("--label", "roles", multiple=True, metavar="LABEL=ROLE", callback=_label, help="The role for a label.")
@click.option("--under", type=TaskId(*OPEN), metavar="ID", help="Put them under this task, which pays for them.")
@click.option("--checks", is_flag=True, help="Also take over the commands that check tasks in an exported file.")
@board_option
@json_option
def import_(file: Path, *, source: Any, dry_run: bool, as_json: bool, under: int | None, **given: Any) -> None:
    """Put work on the board that is written down elsewhere: GitHub issues, a checklist, a CSV file or a task list.

    What has ended is left out. Importing the same file again puts only what is new in it. If one row is wrong, nothing
    is put. FILE may be - for standard input.
    """
    project = here()
    url = board_url(project)
    if not dry_run:
        from .trust import require_trust

        require_trust(project, url, makes=True, asks=not as_json)
    read = read_source(file, source, _stdin() if str(file) == "-" else None)
    _progress(f"Read {counted(len(read.rows), 'row')} from {file}.", as_json)

    async def work() -> None:
        try:
            async with opened(project, url, makes=not dry_run) as board:
                await _import(board, read, as_json=as_json, dry_run=dry_run, under=under, **given)
        except BoardUnreachable as trouble:
            if not dry_run or not str(trouble).startswith("There is no board "):
                raise
            _answer(as_json, plan_import(read, {}, project.limits, under=under, **given), None)

    asyncio.run(work())


def _stdin() -> bytes:
    data = sys.stdin.buffer.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise BadInput(f"Standard input has more than {BYTES_MAX // 1024**2} MiB; import it in parts.")
    return data


def _progress(says: str, as_json: bool) -> None:
    if not as_json and sys.stderr.isatty():
        click.echo(one_line(says), err=True)


async def _import(
    board: Board, read: RowsRead, *, as_json: bool, dry_run: bool, under: int | None, **given: Any
) -> None:
    if under is not None:
        await board.find(under)
    plan = plan_import(read, keyed(await all_pages(board.list_tasks, "id")), board.limits, under=under, **given)
    put: Sequence[Task] | None = None
    if not dry_run:
        _progress(f"Putting {counted(len(plan.put), 'task')} on the board.", as_json)
        put = await board.put_many(plan.put)
    _answer(as_json, plan, put)


def _answer(as_json: bool, plan: ImportPlan, put: Sequence[Task] | None) -> None:
    """`put`: what is on the board now; None: it was a dry run."""
    if put is None:
        lines = [f"{each.role or 'anyone'}: {one_line(each.title, 80)}" for each in plan.put]
    else:
        lines = [f"#{task.id} {task.state}: {one_line(task.title, 80)}" for task in put]
    tasks = [
        {"id": None if put is None else put[at].id, "key": each.key, "title": each.title, "role": each.role}
        for at, each in enumerate(plan.put)
    ]
    more = [f"and {len(lines) - _SHOWN:,} more"] if len(lines) > _SHOWN else []
    count = counted(len(plan.put), "task")
    said = [f"{'Put' if put is not None else 'A run without --dry-run would put'} {count} on the board"]
    said += [f"{counted(len(plan.there), 'task')} {'is' if len(plan.there) == 1 else 'are'} there already"] * bool(
        plan.there
    )
    said += [f"{plan.left_out:,} ended and {'was' if plan.left_out == 1 else 'were'} left out"] * bool(plan.left_out)
    shape = {
        "tasks": tasks, "there": [task.id for task in plan.there], "left_out": plan.left_out,
        "notes": [*plan.notes], "dry_run": put is None,
    }  # fmt: skip
    answer(as_json, shape, "\n".join([*lines[:_SHOWN], *more, *plan.notes, f"{'; '.join(said)}."]))


@verb("export", only_reads=True, example="""
    dugnad export board.md
    dugnad export board.json --replace
    dugnad export --format json
    """)  # fmt: skip
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(["markdown", "json"]), help="Markdown, unless FILE ends with .json."
)
@click.option("--replace", is_flag=True, help="Write over a file that is there.")
async def export(call: CommandContext, *, file: Path | None, form: str | None, replace: bool) -> None:
    """Write the board as Markdown or JSON: tasks with states, needs and results, and notes.

    Without FILE it is printed. The Markdown can be imported again.
    """
    form = form or (
        "json" if (file and file.suffix.lower() == ".json") or (file is None and call.as_json) else "markdown"
    )
    tasks = await all_pages(call.board.list_tasks, "id")
    needs: dict[int, list[tuple[Need, str]]] = {}
    for task, need, state in await call.board.all_needs(task.id for task in tasks):
        needs.setdefault(task, []).append((need, state))
    notes = await _notes(call.board)
    if form == "json":
        text = json.dumps(_shape(tasks, needs, notes), indent=1) + "\n"
    else:
        from ..backlog.export import as_markdown

        open_ones = {task: [need for need, state in each if state == "open"] for task, each in needs.items()}
        text = "".join(as_markdown(tasks, open_ones, notes))
    if file is None:
        sys.stdout.write(text)
        return
    _write(file, text, replace=replace)
    shape = {"file": str(file), "format": form, "tasks": len(tasks), "notes": len(notes)}
    call.answer(shape, f"{counted(len(tasks), 'task')} and {counted(len(notes), 'note')} are in {file}.")


async def _notes(board: Board) -> list[Note]:
    """All notes, the oldest first."""
    found: list[Note] = []
    while page := await board.search_notes(before=found[-1].id if found else None):
        found += page
    return found[::-1]


def _shape(tasks: Sequence[Task], needs: dict[int, list[tuple[Need, str]]], notes: Sequence[Note]) -> Shape:
    from ..logs.secrets import without_secrets

    def clean(shape: Shape) -> Shape:
        return {key: without_secrets(value) if isinstance(value, str) else value for key, value in shape.items()}

    told = {task: [{**shape_of(need), "state": state} for need, state in each] for task, each in needs.items()}
    return {
        "version": 1,
        "tasks": [{**clean(shape_of(task)), "needs": told.get(task.id, [])} for task in tasks],
        "notes": [clean(shape_of(note)) for note in notes],
    }


def _write(file: Path, text: str, *, replace: bool) -> None:
    from ..config.servers import replace_file

    if file.exists() and not (replace and file.is_file()):
        raise BadInput(f"{file} is there already; name another file, or add --replace.")
    try:
        replace_file(file.absolute(), text)
    except OSError as trouble:
        raise BadInput(f"{file} cannot be written: {trouble.strerror}.") from None
