"""Whatever a file holds, it is read or refused in a sentence; whatever a board holds, its page says it again."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dugnad.backlog.claude import read_claude
from dugnad.backlog.export import as_markdown
from dugnad.backlog.github import read_github
from dugnad.backlog.markdown import read_markdown
from dugnad.backlog.plan import keyed, plan_import
from dugnad.backlog.sheets import read_csv
from dugnad.errors import BadInput
from dugnad.logs.secrets import without_secrets
from dugnad.settings import Limits
from dugnad.text import one_line, plain
from dugnad.types import Need, Task

MARKS = st.sampled_from(
    [
        "- [ ] ", "* [x] ", "1. [/] ", "  ", "\t", "\n", "\r\n", "# ", "```", "~~~", "<!--", "-->", "> ", "a", "#1",
        '<!-- dugnad {"key": "k"} -->', "<!-- dugnad {", "} -->", "\ufeff", ",", ";", '"', "title", "id,title\n", "[",
        "]", "{", "}", '"number": 1', ":", "Blocked by #", "\x1b", "\u202e", "\x00", "é", "-", "--",
    ]
)  # fmt: skip
TEXTS = st.lists(MARKS | st.text(max_size=5), max_size=30).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "number", "title", "subject", "blocks", "blockedBy", "labels", "body", "url", "nodes"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
READERS = {
    "github": read_github, "markdown": read_markdown, "csv": read_csv,
    "claude": lambda text, name: read_claude([(name, text)], "list"),
}  # fmt: skip


def read_or_refused(source: str, text: str) -> None:
    try:
        plan = plan_import(READERS[source](text, "a.txt"), {}, Limits())
    except BadInput:
        return
    assert len({task.key for task in plan.put}) == len(plan.put)
    assert all(task.title.strip() for task in plan.put)


@pytest.mark.parametrize("source", READERS)
@given(TEXTS)
def test_any_text_is_read_or_refused_in_a_sentence(source: str, text: str) -> None:
    read_or_refused(source, text)


@pytest.mark.parametrize("source", ["github", "claude"])
@given(VALUES)
def test_any_json_is_read_or_refused_in_a_sentence(source: str, value: Any) -> None:
    read_or_refused(source, json.dumps(value))


def task(number: int, title: str, body: str, key: str) -> Task:
    given: dict[str, Any] = {each.name: None for each in fields(Task)}
    usual = {"root": number, "kind": "goal", "state": "ready", "priority": 0, "plan": False, "depth": 0}
    return Task(**{**given, **usual, "id": number, "title": title, "body": body, "key": key})


@given(st.lists(st.tuples(TEXTS.filter(one_line), TEXTS, TEXTS.filter(bool)), min_size=1, max_size=4))
def test_a_page_says_all_tasks_again_whatever_is_in_them(texts: list[tuple[str, str, str]]) -> None:
    tasks = [task(number, *each) for number, each in enumerate(texts, start=1)]
    needs = {each.id: [Need(each.id - 1, "approved")] for each in tasks[1:]}
    found = read_markdown("".join(as_markdown(tasks, needs)), "board.md")
    assert found.wrong == []
    keys = [*keyed(tasks)]
    assert [row.key for row in found.rows] == keys
    assert [[(need.key, need.outcome) for need in row.needs] for row in found.rows] == [
        [], *([(key, "approved")] for key in keys[:-1]),
    ]  # fmt: skip
    for row, each in zip(found.rows, tasks, strict=True):
        assert row.title == one_line(without_secrets(each.title), 10**9)
        assert row.body == _clean(each.body)
        assert not row.ended


def _clean(text: str) -> str:
    return "\t".join(map(plain, without_secrets(text).split("\t")))


MANY = 200_000
HOSTILE = {
    "blank lines": "\n" * MANY, "comments that do not end": "<!--" * MANY, "ends of comments": "--> <!--" * MANY,
    "spaces": "- [ ] a" + " " * MANY + "x", "a heading of spaces": "# " + " " * MANY + "x", "marks": "#" * MANY,
    "fences": "```\n" * MANY, "our comments": "- [ ] a" + " <!-- dugnad {" * MANY, "brackets": "[" * MANY,
    "quotation marks": '"' * MANY, "commas": "title" + "," * MANY, "one word": "a" * MANY, "slashes": "a/" * MANY,
    "an issue of blank lines": json.dumps([{"number": 1, "title": "a", "body": "\n" * MANY}]),
    "an issue of one word": json.dumps([{"number": 1, "title": "a", "body": "Blocked by " + "a" * MANY}]),
    "an issue of slashes": json.dumps([{"number": 1, "title": "a", "body": "Blocked by " + "a/a" * MANY}]),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_no_text_takes_forever(what: str) -> None:
    """Each would take minutes if the time grew with the square of its length."""
    for source in READERS:
        read_or_refused(source, HOSTILE[what])


def test_deep_nesting_and_long_headings_are_bounded() -> None:
    deep = read_markdown("".join(f"{' ' * n}- [ ] a\n" for n in range(40)), "a.md")
    assert deep.wrong == [f"a.md line {n}: it is nested more than 32 deep" for n in range(33, 41)]
    long = read_markdown(f"# {'word ' * MANY}\n- [ ] a\n- [ ] b\n", "a.md")
    assert all(len(row.body) <= 200 for row in long.rows)


@pytest.mark.proof
def test_too_many_rows_are_refused() -> None:
    for source, text in (
        ("markdown", "- [x] a\n"),
        ("csv", "title\n" + "a\n"),
        ("claude", '{"id": 1, "subject": "a"}'),
    ):
        with pytest.raises(BadInput, match="There are more than 100,000"):
            READERS[source](text + text.split("title\n")[-1] * 100_001, "a")
