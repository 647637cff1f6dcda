"""The one reader: what annotations mean, and the sentence for each thing that is wrong. No board, and no real file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from dugnad.config.kinds import BudgetTable, Hosts
from dugnad.config.reader import (
    UNREAD,
    FileLocation,
    Pattern,
    as_given,
    kind_of,
    leads_out,
    nearest,
    parts,
    read,
    read_text,
    read_toml,
    said,
    shown,
)
from dugnad.errors import BadInput
from dugnad.types import Budget

SHORT = Pattern("[a-z]{1,5}", ": {} is no short word.")
PLACE = FileLocation(file="x.toml", secrets="keys live elsewhere.")


def doubled(place: FileLocation, value: Any) -> int:
    return int(value) * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    title: Annotated[str, "title", "name"]
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    name: Annotated[str, UNREAD]
    age: int | None = None
    tall: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    width: Annotated[float, (None, 10)] = 1.0
    height: Annotated[float, 0] = 1.0

    def __post_init__(self) -> None:
        if self.height > self.width:
            raise BadInput("is higher than wide.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    text: str = ""
    words: tuple[str, ...] = ()
    count: int = 1
    depth: Annotated[int, (-3, 3)] = 0
    share: Annotated[float, (0, 1)] = 0.0
    mode: Literal["fast", "slow"] = "fast"
    twice: Annotated[int, doubled] = 0
    called_otherwise: Annotated[int, "other"] = 1
    sizes: Sizes = field(default_factory=Sizes)
    people: Mapping[Annotated[str, SHORT], Person] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()


def test_a_table_fills_a_record_and_what_it_leaves_out_keeps_its_default() -> None:
    given = {
        "text": "x", "words": "one", "count": 3, "depth": -3, "share": 1, "mode": "slow", "twice": 4, "other": 7,
        "sizes": {"width": 2}, "people": {"anna": {"age": 9}, "bo": {}}, "rows": [{"title": "a"}, {"name": "b"}],
    }  # fmt: skip
    found = read(Whole, PLACE, given)
    assert found == Whole(
        text="x", words=("one",), count=3, depth=-3, share=1.0, mode="slow", twice=8, called_otherwise=7,
        sizes=Sizes(width=2.0), people={"anna": Person(name="anna", age=9), "bo": Person(name="bo")},
        rows=(Row(title="a"), Row(title="b")),
    )  # fmt: skip
    assert isinstance(found.sizes.width, float)
    assert read(Whole, PLACE, {}) == Whole()
    with pytest.raises(TypeError):
        found.people["eve"] = Person(name="eve")  # type: ignore[index]


@pytest.mark.parametrize(("given", "says"), [
    ({"txet": 1}, "x.toml: the top level has no key 'txet'; did you mean 'text'?"),
    ({"sizes": {"x": 1}}, "x.toml: [sizes] has no key 'x'; there are height, width."),
    ({"sizes": {"api_key": 1}}, "x.toml: 'api_key' in [sizes] does not belong there: keys live elsewhere."),
    ({"called_otherwise": 1}, "x.toml: the top level has no key 'called_otherwise'; there are "
     "count, depth, mode, other, people, rows, share, sizes, text, twice, words."),
    ({"people": {"anna": {"name": "x"}}}, "x.toml: [people.anna] has no key 'name'; there are age, tall."),
    ({"text": 1}, "x.toml: text must be text, not 1."),
    ({"text": " "}, "x.toml: text must be text, not ' '."),
    ({"text": "a\0b"}, "x.toml: text must be text, not 'a\\x00b'."),
    ({"words": ["a", 3]}, "x.toml: words must be text, not 3."),
    ({"count": 0}, "x.toml: count must be a whole number from 1 upwards, not 0."),
    ({"count": True}, "x.toml: count must be a whole number from 1 upwards, not True."),
    ({"count": 1.0}, "x.toml: count must be a whole number from 1 upwards, not 1.0."),
    ({"count": 2**53 + 1}, "x.toml: count must be a whole number from 1 upwards, not 9007199254740993."),
    ({"depth": 4}, "x.toml: depth must be a whole number from -3 to 3, not 4."),
    ({"share": 1.5}, "x.toml: share must be a number from 0 to 1, not 1.5."),
    ({"share": float("nan")}, "x.toml: share must be a number from 0 to 1, not nan."),
    ({"sizes": {"width": 0}}, "x.toml: [sizes] width must be a number above 0 and up to 10, not 0."),
    ({"sizes": {"height": -1}}, "x.toml: [sizes] height must be a number from 0 upwards, not -1."),
    ({"sizes": {"height": float("inf")}}, "x.toml: [sizes] height must be a number from 0 upwards, not inf."),
    ({"sizes": {"height": 5}}, "x.toml: [sizes] is higher than wide."),
    ({"sizes": 3}, "x.toml: sizes must be a table, not 3."),
    ({"mode": "medium"}, "x.toml: mode must be one of fast, slow, not 'medium'."),
    ({"mode": {}}, "x.toml: mode must be one of fast, slow, not a table."),
    ({"people": {"Anna": {}}}, "x.toml: people: 'Anna' is no short word."),
    ({"people": {"anna": {"tall": 1}}}, "x.toml: [people.anna] tall must be true or false, not 1."),
    ({"rows": {"title": "a"}}, "x.toml: rows must be written as [[rows]], once for each, not as a table."),
    ({"rows": [{"weight": 1}]}, 'x.toml: [rows.1] has no title; write title = "...".'),
    ({"rows": [{"title": "a"}, {"title": "b", "weight": 0}]},
     "x.toml: [rows.b] weight must be a whole number from 1 upwards, not 0."),
    ({"rows": [{"title": "a", "name": "a"}]}, "x.toml: [rows.a] has title and name; keep one."),
    ({"rows": [{"title": "a b\x1b", "weight": 0}]},
     'x.toml: [rows."a b\\x1b"] weight must be a whole number from 1 upwards, not 0.'),
])  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence_with_file_and_place(given: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput) as met:
        read(Whole, PLACE, given)
    assert str(met.value) == says


def test_an_unknown_key_is_refused_before_any_value_is_looked_at() -> None:
    with pytest.raises(BadInput, match="no key 'nonsense'"):
        read(Whole, PLACE, {"text": 1, "nonsense": 2})


def test_one_table_can_fill_several_records() -> None:
    kind = parts(BudgetTable, Sizes)
    assert kind(PLACE, {"tasks": 2, "width": 3}) == (BudgetTable(tasks=2), Sizes(width=3.0))
    with pytest.raises(BadInput, match="did you mean 'width'"):
        kind(PLACE, {"tasks": 2, "widht": 3})


def test_what_a_file_says_is_given_back_by_its_keys_and_no_others() -> None:
    given = {"other": 5, "words": "one", "share": 1, "people": {"bo": {}}, "sizes": {"width": 2}}
    kept = {"other": 5, "words": ("one",), "share": 1.0, "people": {"bo": {}}, "sizes": {"width": 2.0}}
    assert as_given(read(Whole, PLACE, given), given) == kept
    both = {"tasks": 2, "width": 3}
    assert as_given(parts(BudgetTable, Sizes)(PLACE, both), both) == {"tasks": 2, "width": 3.0}


def test_a_budget_is_written_in_minutes_and_counted_in_seconds() -> None:
    assert read(BudgetTable, PLACE, {"minutes": 1.5, "tasks": 2}).caps() == Budget(tasks=2, seconds=90.0)
    assert said(BudgetTable(tasks=2)) == {"tasks": 2}


def test_caps_lie_over_those_below_and_leave_the_others() -> None:
    below = Budget(tasks=9, dollars=2.0)
    assert Budget(tasks=1, seconds=0.0).over(below) == Budget(tasks=1, dollars=2.0, seconds=0.0)
    assert Budget().over(below) == below


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "https://x.org", "x.org:0", "x.org:99999", "[::1]", "a b.c"]
)
def test_a_host_is_one_that_the_sandbox_can_open(host: str) -> None:
    with pytest.raises(BadInput, match=r"^x.toml: hosts: .* is not a host to be reached"):
        kind_of(Hosts)(PLACE.under("hosts"), [host])
    assert kind_of(Hosts)(PLACE, ["pypi.org", "*.x.org:8443"]) == ("pypi.org", "*.x.org:8443")


def test_a_value_in_a_sentence_is_short_and_harmless() -> None:
    assert shown("\x1b[2J") == "'\\x1b[2J'"
    assert len(shown("x" * 500)) == 60
    assert (shown([1]), shown({})) == ("a list", "a table")
    assert nearest("zzz", ()) == "docs/configuration.md lists what there is."


def test_a_file_is_read_beneath_its_root_and_no_link_leads_out(folder: Path) -> None:
    inside = folder / "project"
    inside.mkdir()
    (folder / "secret.toml").write_text("x = 1")
    (inside / "mine.toml").write_text("\ufeffx = 1\r\n")
    (inside / "link.toml").symlink_to(folder / "secret.toml")
    place = FileLocation(file="mine.toml", root=inside)
    assert read_toml(inside / "mine.toml", place) == {"x": 1}
    assert leads_out(inside / "link.toml", inside)
    with pytest.raises(BadInput, match="leads out of the project"):
        read_toml(inside / "link.toml", place)
    os.mkfifo(inside / "pipe")
    with pytest.raises(BadInput, match="is not a file"):
        read_text(inside / "pipe", "pipe", place)


@pytest.mark.parametrize(("content", "says"), [
    (b"x = ", "is not TOML"), (b"\xff", "is not UTF-8"), (b"a." * 300 + b"b = 1", "line 1 has more than 256 dots"),
    (b"x = " + b"[" * 5_000, "TOML|nested too deeply"), (b"#" * 70_000, "has more than 64 KiB"),
    (b"x = " + b"9" * 5_000, "a number or a date that cannot be read"),
])  # fmt: skip
def test_what_is_no_file_of_ours_gets_a_sentence(folder: Path, content: bytes, says: str) -> None:
    (folder / "x.toml").write_bytes(content)
    with pytest.raises(BadInput, match=rf"^x\.toml.*(?:{says})"):
        read_toml(folder / "x.toml", PLACE)
