"""A board as Markdown: a checklist that people read, and that can be imported again. Pure.

Each item ends with a comment that holds what the text cannot say. The body is quoted, so that no line of it is taken
for an item or for a comment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..logs.secrets import without_secrets
from ..text import one_line, plain
from ..types import Need, Note, Task
from .plan import keyed

_ALL = 10**9


def as_markdown(
    tasks: Sequence[Task], needs: Mapping[int, Sequence[Need]], notes: Iterable[Note] = ()
) -> Iterator[str]:
    """The page, in pieces. `needs`: of each task."""
    keys = {task.id: key for key, task in keyed(tasks).items()}
    yield "# Board\n"
    for heading, ended in (("Open", False), ("Ended", True)):
        shown = [task for task in tasks if task.ended == ended]
        yield f"\n## {heading}\n\n" if shown else ""
        for task in shown:
            yield "\n".join(_item(task, needs.get(task.id, ()), keys)) + "\n"
    for at, note in enumerate(notes):
        yield "\n## Notes\n" if at == 0 else ""
        yield (
            "\n".join(["", f"### {_line(note.title)}", "", f"By {_line(note.author)}:", "", *_quoted(note.text, "")])
            + "\n"
        )


def _item(task: Task, needs: Sequence[Need], keys: Mapping[int, str]) -> Iterator[str]:
    title = _line(task.title)
    facts = {
        "key": keys[task.id],
        "title": title if "<!--" in title else None,
        "needs": [[keys[need.task], need.outcome] for need in needs if need.task in keys],
        "under": keys.get(task.parent or 0),
        "kind": task.kind if task.kind not in ("goal", "work") else None,  # Nobody puts such a task by hand.
        **{name: getattr(task, name) for name in ("role", "priority", "check", "review", "plan")},
    }
    yield f"- [{'x' if task.ended else ' '}] {title.replace('<!--', '<! --')} <!-- dugnad {_comment(facts)} -->"
    if task.body:
        yield from _quoted(task.body, "  ")
    waits = [f"needs #{need.task}" for need in needs]
    by = f" by {_line(task.teammate)}" if task.ended and task.teammate else ""
    yield f"\n  #{task.id} {', '.join([f'{task.state}{by}', *([_line(task.role)] if task.role else []), *waits])}"
    if task.reason:
        yield f"\n  Reason: {_line(task.reason)}"
    if task.result:
        yield "\n  Result:\n"
        yield from _quoted(task.result, "  ")
    yield ""


def _comment(facts: Mapping[str, Any]) -> str:
    """JSON in one line that no comment ends in."""
    given = {name: _clean(value) if isinstance(value, str) else value for name, value in facts.items() if value}
    text = json.dumps(given)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("--", "-\\u002d")


def _quoted(text: str, indent: str) -> Iterator[str]:
    for line in _clean(text).split("\n"):
        yield f"{indent}> {line}" if line else f"{indent}>"


def _clean(text: str) -> str:
    """Without secrets, and without what a terminal would obey. Tabs stay."""
    return "\t".join(map(plain, without_secrets(text).split("\t")))


def _line(text: str | None) -> str:
    return one_line(without_secrets(text or ""), _ALL)
