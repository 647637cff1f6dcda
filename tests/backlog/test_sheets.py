"""CSV: columns by the names that other programs give them, and rows that are wrong with their line."""

from __future__ import annotations

import pytest

from dugnad.backlog.rows import Row
from dugnad.backlog.sheets import read_csv
from dugnad.errors import BadInput


def read(text: str) -> list[Row]:
    found = read_csv(text, "b.csv")
    assert found.wrong == []
    return found.rows


def test_columns_are_found_by_their_names() -> None:
    columns = "ID,Summary,Description,Blocked_By,Labels,Priority,Status,Role"
    (row,) = read(f'\ufeff{columns}\n7,Do it,"How,\nexactly","3; #4",a;b c,High,Open,coder\n')
    assert (row.key, row.title, row.body, row.role) == ("csv:b.csv:7", "Do it", "How,\nexactly", "coder")
    assert [need.key for need in row.needs] == ["csv:b.csv:3", "csv:b.csv:4"]
    assert (row.labels, row.priority, row.ended, row.where) == (("a", "b c"), 1, False, "b.csv line 2")


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_columns_may_be_separated_in_three_ways(mark: str) -> None:
    assert [row.priority for row in read(f"title{mark}priority\na{mark}5\nb{mark}-3\nc{mark}\n")] == [5, -3, 0]


@pytest.mark.parametrize("word", ["done", "Closed", "COMPLETED", "x", "true", "Cancelled"])
def test_what_has_ended_is_known_by_the_usual_words(word: str) -> None:
    assert [row.ended for row in read(f"title,status\na,{word}\nb,In Progress\n")] == [True, False]


def test_without_ids_a_row_is_known_by_its_title() -> None:
    first, again = read("title\na\nb\na\n"), read("title,body\nb,x\na,\n\na,\n")
    assert {row.key for row in first} == {row.key for row in again}
    assert len({row.key for row in first}) == 3


def test_short_rows_blank_lines_and_unknown_columns_do_no_harm() -> None:
    found = read_csv("title,colour,body\na\n\n ,,\nb,red,c,d,e\n", "b.csv")
    assert [(row.title, row.body) for row in found.rows] == [("a", ""), ("b", "c")]
    assert found.notes == ["b.csv: these columns are not used: colour."]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title,body\n,words\n", "b.csv line 2: the title is empty"),
        ('title,body\na,"x\ny"\nb\n,c\n', "b.csv line 5: the title is empty"),
        ("title,priority\na,soon\n", "b.csv line 2: the priority 'soon' is neither"),
    ],
)
def test_a_wrong_row_is_named_with_the_line_that_it_begins_in(text: str, said: str) -> None:
    (found,) = read_csv(text, "b.csv").wrong
    assert found.startswith(said)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "# words\n"])
def test_a_table_without_a_title_is_refused(text: str) -> None:
    if text:
        with pytest.raises(BadInput, match=r"^b\.csv: the first line names no column `title`"):
            read_csv(text, "b.csv")
    else:
        assert read(text) == []


def test_quotation_marks_that_do_not_end_are_refused_with_their_line() -> None:
    with pytest.raises(BadInput, match=r"^b\.csv line [23]: .*; correct the quotation marks"):
        read_csv('title,body\na,"x\n', "b.csv")
