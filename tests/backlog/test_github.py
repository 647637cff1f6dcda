"""Issues as gh and the API print them: what becomes of each field, and which issues one waits for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dugnad.backlog.github import read_github
from dugnad.backlog.rows import Row
from dugnad.errors import BadInput

URL = "https://github.com/Acme/Rocket/issues/{}"


def issue(number: int, **fields: Any) -> dict[str, Any]:
    return {"number": number, "title": f"Issue {number}", "state": "OPEN", "url": URL.format(number), **fields}


def read(*issues: Any, **dump: Any) -> list[Row]:
    found = read_github(json.dumps(issues, **dump), "issues.json")
    assert found.wrong == []
    return found.rows


def needs(row: Row) -> list[str]:
    return [need.key for need in row.needs]


def test_an_issue_of_gh_is_a_row_with_its_address_in_front_of_its_words() -> None:
    labels = [{"id": "L1", "name": "bug", "color": "d73a4a"}, {"name": "good first issue"}]
    (row,) = read(issue(12, body="It breaks.\r\n\r\nOften.\r\n", labels=labels))
    assert (row.key, row.title, row.ended) == ("github:acme/rocket#12", "Issue 12", False)
    assert row.body == "https://github.com/Acme/Rocket/issues/12\n\nIt breaks.\n\nOften."
    assert row.labels == ("bug", "good first issue")
    assert row.where == "issues.json line 1 (#12)"


def test_an_issue_of_the_api_is_the_same_row() -> None:
    api = {
        "number": 12, "title": "Issue 12", "state": "open", "html_url": URL.format(12), "labels": ["bug"], "body": None,
        "url": "https://api.github.com/repos/Acme/Rocket/issues/12",
    }  # fmt: skip
    (row,) = read(api)
    assert (row.key, row.body, row.labels) == ("github:acme/rocket#12", URL.format(12), ("bug",))


def test_closed_issues_and_pull_requests_have_ended() -> None:
    rows = read(
        issue(1, state="CLOSED"), issue(2, state="closed"), issue(3, state="MERGED"), issue(4, closed=True),
        issue(5, pull_request={}), issue(6),
    )  # fmt: skip
    assert [row.ended for row in rows] == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("Blocked by #3", ["github:acme/rocket#3"]),
        ("Some words.\n\n**Blocked by:** #3, #4 and other/repo#5", [
            "github:acme/rocket#3", "github:acme/rocket#4", "github:other/repo#5"]),
        ("- depends on https://github.com/acme/rocket/issues/7", ["github:acme/rocket#7"]),
        ("> Requires #8", ["github:acme/rocket#8"]),
        ("See #3. It blocks #4.", []),
        ("This was blocked by #3 once.", []),
        ("Blocked by nothing.", []),
        ("Blocked by #12", []),  # Itself.
    ],
)  # fmt: skip
def test_what_blocks_an_issue_is_read_from_lines_that_say_so(body: str, wanted: list[str]) -> None:
    assert needs(read(issue(12, body=body))[0]) == wanted


def test_links_between_issues_are_needs_unless_they_are_closed() -> None:
    linked = {"nodes": [{"number": 3, "url": URL.format(3), "state": "OPEN"}, {"number": 4, "state": "CLOSED"}]}
    (row,) = read(issue(12, blockedBy=linked, subIssues={"nodes": [{"number": 9, "state": "OPEN"}], "totalCount": 1}))
    assert needs(row) == ["github:acme/rocket#3", "github:acme/rocket#9"]
    assert needs(read(issue(12, blockedBy=[{"number": 3}]))[0]) == ["github:acme/rocket#3"]


def test_several_pages_one_after_another_are_one_list_and_lines_are_counted() -> None:
    text = json.dumps([issue(1)], indent=1) + "\n" + json.dumps([issue(2), issue(3)]) + "\n" + json.dumps(issue(4))
    rows = read_github(text, "issues.json").rows
    assert [row.key[-1] for row in rows] == ["1", "2", "3", "4"]
    assert [int(row.where.split()[2]) for row in rows] == [2, 9, 9, 10]


@pytest.mark.parametrize(
    "strange",
    [1, "text", None, [], {}, {"number": "12", "title": "x"}, {"number": True, "title": "x"}, {"number": 1}, {
        "number": 1, "title": " "}, {"number": 1, "title": 5}],
)  # fmt: skip
def test_what_is_no_issue_is_named_with_its_line(strange: Any) -> None:
    found = read_github(json.dumps([issue(1), strange], indent=0), "issues.json")
    (said,) = found.wrong
    assert said.startswith("issues.json line ")
    assert "this is no issue" in said
    assert len(found.rows) == 1


@pytest.mark.parametrize("fields", [{"labels": 5}, {"labels": [5, None, {"name": 6}]}, {"blockedBy": {"nodes": 7}}, {
    "blockedBy": [None, "x"]}, {"body": 3}, {"state": 4}, {"url": ["x"]}])  # fmt: skip
def test_fields_of_another_kind_do_no_harm(fields: dict[str, Any]) -> None:
    assert len(read(issue(1, **fields))) == 1


@pytest.mark.parametrize("text", ["[1, 2", "[{]", "nonsense", '{"a": }', "[" * 100_000, "]"])
def test_what_is_no_json_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(BadInput, match=r"^issues\.json (line 1 is not JSON|ends in the middle)"):
        read_github(text, "issues.json")
