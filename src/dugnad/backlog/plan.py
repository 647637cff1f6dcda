"""From rows to the tasks that are put: everything is judged first, and one wrong row stops all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..board import rules
from ..errors import BadInput, DugnadError
from ..logs.secrets import without_secrets
from ..settings import Limits
from ..text import clean, counted, one_line
from ..types import Need, NewTask, Task
from .rows import Row, RowsRead, short_hash, shown

_WRONG_SHOWN_MAX = 1_000
_NOTES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What an import does."""

    put: tuple[NewTask, ...]  # In the order of the rows. A need below zero is an entry of this list.
    there: tuple[Task, ...]  # What is on the board already.
    left_out: int  # Rows that have ended.
    notes: tuple[str, ...] = ()


def keyed(tasks: Iterable[Task]) -> dict[str, Task]:
    """Tasks by the names that imports and exports have for them: their keys, of which each root has its own, and which
    may hold what no page should."""
    found: dict[str, Task] = {}
    for task in tasks:
        fine = one_line(without_secrets(task.key), len(task.key)) == task.key
        key = task.key if fine else f"key:{short_hash(task.key)}"
        found[key if key not in found else f"{key}~{task.id}"] = task
    return found


def plan_import(
    read: RowsRead, on_board: Mapping[str, Task], limits: Limits, *, role: str | None = None,
    roles: Mapping[str, str] | None = None, under: int | None = None, checks: bool = False,
) -> ImportPlan:  # fmt: skip
    """`role`: for rows that name none. `roles`: by label. `under`: the task that all of them are put under. `checks`:
    also take over the commands that check a row's work. BadInput: a row is wrong; every wrong one is named."""
    wrong, notes = list(read.wrong), list(read.notes)
    rows = [_within(row, limits) for row in read.rows]
    first: dict[str, Row] = {}
    for row in rows:
        if (same := first.setdefault(row.key, row)) is not row:
            wrong.append(f"{row.where}: it has the same number as {same.where}; keep one of them")
    new = [row for row in rows if not row.ended and row.key not in on_board]
    places = {row.key: -at for at, row in enumerate(new, start=1)}
    put = []
    for row in new:
        try:
            needs = _needs(row, first, places, on_board, notes if read.open_ended else None)
            above = on_board.get(row.under or "")
            parent = places.get(row.under or "") or (under if above is None else above.id)
            task = NewTask(
                title=row.title, body=row.body, needs=needs, role=_role(row, role, roles or {}), key=row.key,
                priority=row.priority, check=row.check if checks else None, review=row.review, plan=row.plan,
                parent=parent,
            )  # fmt: skip
            put.append(rules.new_task(task, limits))
            if row.check and not checks:
                notes.append(
                    f"{row.where} has a check, which is not taken over: {shown(row.check)}; --checks takes it."
                )
        except DugnadError as refused:
            wrong.append(f"{row.where}: {str(refused).rstrip('.')}")
    if not wrong:
        wrong += _together(new, put, limits)
    if wrong:
        raise BadInput(_all(wrong))
    there = tuple(on_board[row.key] for row in rows if row.key in on_board)
    more = len(notes) - _NOTES_MAX
    told = notes[:_NOTES_MAX] + ([f"There are {counted(more, 'more note')}."] if more > 0 else [])
    return ImportPlan(put=tuple(put), there=there, left_out=len(rows) - len(new) - len(there), notes=tuple(told))


def _together(rows: Sequence[Row], put: Sequence[NewTask], limits: Limits) -> list[str]:
    """What is wrong with the rows as a whole, if each by itself is right."""
    if len(put) > limits.batch_max:
        return [f"{len(put):,} rows are open, and at most {limits.batch_max:,} can be put at once; split the file"]
    way = rules.circle({-at: [need.task for need in rules.needs(task)] for at, task in enumerate(put, start=1)})
    named = [f"{rows[-at - 1].where} {shown(rows[-at - 1].title)}" for at in way or ()]
    return [f"{' needs '.join(named)}: they wait for one another in a circle; take one need out"] if named else []


def _within(row: Row, limits: Limits) -> Row:
    """With a title on one line, of a length that the board takes; a longer one is whole in the body."""
    title, body = one_line(row.title, limits.title_chars_max), clean(row.body)
    if len(" ".join(row.title.split())) > limits.title_chars_max:
        body = f"{clean(row.title.strip())}\n\n{body}".strip()
    key = row.key if len(row.key) <= limits.key_chars_max else f"{row.key[:60]}~{short_hash(row.key)}"
    return replace(row, title=title, body=body, key=clean(key))


def _needs(
    row: Row, rows: Mapping[str, Row], places: Mapping[str, int], on_board: Mapping[str, Task], notes: list[str] | None
) -> tuple[Need, ...]:
    """The needs of a row that are still open. What has ended in the file is met."""
    found: dict[int, Need] = {}
    for need in row.needs:
        if need.key in places:
            at = places[need.key]
        elif need.key in on_board:
            at = on_board[need.key].id
        elif need.key in rows:
            continue  # It has ended.
        elif notes is None:
            raise BadInput(f"it needs {need.says or shown(need.key)}, and there is no such row; correct it")
        else:
            notes.append(f"{row.where} needs {need.says}, which is neither here nor on the board: it counts as ended.")
            continue
        if at == places.get(row.key):
            raise BadInput("it needs itself; take that out")
        found.setdefault(at, Need(at, need.outcome))
    return tuple(found.values())


def _role(row: Row, usual: str | None, roles: Mapping[str, str]) -> str | None:
    """What the row says, else the role of the first label that has one, else the usual one."""
    labels = {each.casefold() for each in row.labels}
    by_label = next((role for label, role in roles.items() if label.casefold() in labels), None)
    return row.role or by_label or usual


def _all(wrong: Sequence[str]) -> str:
    shown_ones = [one_line(each, 400) for each in wrong[:_WRONG_SHOWN_MAX]]
    more = [f"and {len(wrong) - _WRONG_SHOWN_MAX:,} more"] if len(wrong) > _WRONG_SHOWN_MAX else []
    return "\n".join([f"Nothing was put, because of {counted(len(wrong), 'mistake')}:", *shown_ones, *more])
