"""Checklists: which lines are work, what belongs to them, what waits for what, and what is not seen."""

from __future__ import annotations

import pytest

from dugnad.backlog.markdown import read_markdown
from dugnad.backlog.rows import Row


def read(text: str) -> list[Row]:
    found = read_markdown(text, "TODO.md")
    assert found.wrong == []
    return found.rows


def titles(text: str) -> list[str]:
    return [row.title for row in read(text)]


def test_every_item_with_a_box_is_a_row_in_any_kind_of_list() -> None:
    text = "- [ ] a\n* [ ] b\n+ [x] c\n1. [X] d\n12) [ ] e\n- [-] f\n\n- no box\n[ ] no list\n- [link](x)\n- [1] note\n"
    rows = read(text)
    assert [(row.title, row.ended) for row in rows] == [
        ("a", False), ("b", False), ("c", True), ("d", True), ("e", False), ("f", True),
    ]  # fmt: skip
    assert rows[3].where == "TODO.md line 4"


def test_an_item_waits_for_those_nested_in_it() -> None:
    text = "- [ ] build\n  - [ ] frame\n    - [ ] wood\n  - [x] plan\n- [ ] sell\n\t- [ ] price\n"
    rows = {row.title: row for row in read(text)}
    keys = {row.key: title for title, row in rows.items()}
    assert {title: [keys[need.key] for need in row.needs] for title, row in rows.items()} == {
        "build": ["frame", "plan"], "frame": ["wood"], "wood": [], "plan": [], "sell": ["price"], "price": [],
    }  # fmt: skip
    assert rows["wood"].body == "build > frame"


def test_text_below_an_item_is_its_body_and_headings_say_what_it_is_about() -> None:
    text = (
        "# App\n\nWords about the app.\n\n## Login #\n\n- [ ] Fix it\n  First line.\n\n  - a point\n  - another\n\n"
        "  ```py\n  # no heading\n  - [ ] no item\n  ```\n- [ ] Next\ngoes on\n\nA paragraph.\n\n# Other\n- [ ] Last\n"
    )
    fix, following, last = read(text)
    assert fix.body == ("App > Login\n\nFirst line.\n\n- a point\n- another\n\n```py\n# no heading\n- [ ] no item\n```")
    assert following.body == "App > Login\n\ngoes on"
    assert last.body == "Other"


def test_code_at_the_side_holds_no_items_and_longer_fences_end_where_they_should() -> None:
    assert titles("````\n- [ ] a\n```\n- [ ] b\n````\n- [ ] c\n~~~\n- [ ] d\n") == ["c"]


@pytest.mark.parametrize(
    "text",
    [
        "<!-- - [ ] b -->\n- [ ] a", "<!--\n- [ ] b\n-->\n- [ ] a", "<!--\n```\n-->\n- [ ] a", "- [ ] a <!-- b -->",
        "- [ ] a <!-- b\n- [ ] c\n-->", "x <!-- y --> <!--\n- [ ] b\n--> - [ ] c\n\n- [ ] a",
    ],
)  # fmt: skip
def test_what_a_page_does_not_show_is_not_read(text: str) -> None:
    found = titles(text)
    assert "b" not in found
    assert "a" in found
    assert all("<!--" not in each for each in found)


def test_the_key_stays_when_other_lines_change_and_equal_items_are_counted() -> None:
    before = read("# A\n- [ ] one\n- [ ] two\n- [ ] one\n# B\n- [ ] one\n")
    after = read(
        "words\n# A\n- [x] zero\n- [x] one\n  - [ ] more\n- [ ] two <!-- x -->\n\n- [ ] one\n# B\n1. [ ] one\n"
    )
    assert len({row.key for row in before}) == 4
    assert [row.key for row in before] == [row.key for row in after if row.title not in ("zero", "more")]


def test_what_an_export_wrote_says_more() -> None:
    text = (
        '- [ ] t <!-- dugnad {"key": "k", "needs": [["a", null], ["b", "approved"]], "role": "coder", "priority": 3, '
        '"check": "make", "review": "reviewer", "plan": true, "under": "u"} -->\n'
        "  > line one\n  >\n  >   > quoted <!-- stays -->\n\n  #1 ready\n\n  > no body\n"
        '- [ ] r <!-- dugnad {"key": "m", "kind": "review"} -->\n'
    )
    row, review = read(text)
    assert [(need.key, need.outcome) for need in row.needs] == [("a", None), ("b", "approved")]
    assert row.body == "line one\n\n  > quoted <!-- stays -->"
    assert (row.key, row.role, row.priority, row.check, row.review, row.plan, row.under) == (
        "k", "coder", 3, "make", "reviewer", True, "u",
    )  # fmt: skip
    assert review.ended


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n- [/] a", "TODO.md line 2: the box holds '/'; write [ ] or [x]"),
        ("- [ ]", "TODO.md line 1: the item is empty; say behind the box what to do"),
        ("- [ ] a <!-- dugnad {x} -->", "TODO.md line 1: its comment of dugnad was changed, and is no JSON any more"),
        ('- [ ] a <!-- dugnad {"needs": 5} -->', "TODO.md line 1: its comment of dugnad was changed"),
    ],
)
def test_a_wrong_item_is_named_with_its_line(text: str, said: str) -> None:
    (found,) = read_markdown(text, "TODO.md").wrong
    assert found.startswith(said)


@pytest.mark.parametrize(
    "facts", ['{"key": 5, "role": [], "priority": "x", "needs": [5, [1], [1, 2], ["a", 3]]}', "{}"]
)
def test_facts_of_another_kind_do_no_harm(facts: str) -> None:
    (row,) = read(f"- [ ] a <!-- dugnad {facts} -->")
    assert row.key.startswith("markdown:")


def test_windows_line_ends_and_tabs_are_read() -> None:
    (outer, inner) = read("- [ ] a\r\n\t- [ ] b\r\n\t\tall:\r\n\t\t\tmake\r\n")
    assert [need.key for need in outer.needs] == [inner.key]
    assert inner.body == "a\n\nall:\n    make"
