"""Reviews in proportion: from how many changed lines, and for which paths, a project asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dugnad.board import Board
from dugnad.config.project import ReviewRule, read_project
from dugnad.errors import BadInput
from dugnad.models import ScriptedModel
from dugnad.models.scripted import Step
from tests.team.stage_team import hosting, until_ended
from tests.team.stage_trees import finish, shell, worktrees, write
from tests.workspace.repository import new_repository


@pytest.mark.parametrize(
    ("rule", "changed", "asks"),
    [
        ({}, {"a": 1}, True),
        ({"from_lines": 10}, {"a": 4, "b": 5}, False),
        ({"from_lines": 10}, {"a": 5, "b": 5}, True),
        ({"paths": ("src/auth/**",)}, {"src/auth/deep/login.py": 1}, True),
        ({"paths": ("src/auth/**",)}, {"src/view.py": 900}, False),
        ({"paths": ("*.sql",)}, {"deep/down/a.sql": 1}, True),
        ({"from_lines": 10, "paths": ("*.sql",)}, {"a.py": 10}, True),
        ({"from_lines": 10, "paths": ("*.sql",)}, {"a.sql": 1}, True),
        ({"from_lines": 10, "paths": ("*.sql",)}, {"a.py": 9}, False),
    ],
)
def test_the_rule_asks_for_a_review_by_size_or_by_path(
    rule: dict[str, Any], changed: dict[str, int], asks: bool
) -> None:
    assert ReviewRule(role="reviewer", **rule).asks(changed) is asks


def test_the_rule_says_in_words_when_it_asks() -> None:
    assert ReviewRule(role="reviewer").when == ""
    rule = ReviewRule(role="reviewer", from_lines=20, paths=("*.sql",))
    assert rule.when == "it changes 20 lines or more or it changes *.sql"


def project(folder: Path, text: str) -> Any:
    (folder / "dugnad.toml").write_text(text)
    return read_project(folder, environment={"HOME": str(folder)})


def test_a_file_names_a_role_or_a_table_with_more(folder: Path) -> None:
    assert project(folder, "").review is None
    plain = project(folder, 'review = "rita"')
    assert (plain.review, plain.reviewer, plain.given) == (ReviewRule(role="rita"), "rita", {"review": "rita"})
    found = project(folder, '[review]\nrole = "rita"\nfrom_lines = 20\npaths = ["src/auth/**", "*.sql"]')
    assert found.review == ReviewRule(role="rita", from_lines=20, paths=("src/auth/**", "*.sql"))
    assert found.reviewer == "rita"
    assert found.given["review"] == {"role": "rita", "from_lines": 20, "paths": ("src/auth/**", "*.sql")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[review]\nfrom_lines = 20", "role"),
        ('[review]\nrole = "rita"\nfrom_lines = 0', "from_lines"),
        ('[review]\nrole = "rita"\npaths = ["/etc/*"]', "leads out"),
        ('[review]\nrole = "rita"\nfrom_line = 3', "did you mean 'from_lines'"),
        ("review = 3", "review"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(folder: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        project(folder, text)


async def reviewed(board: Board, root: Path, step: Step, rule: ReviewRule, **fields: Any) -> bool:
    """Whether what this step makes was reviewed before it was merged."""
    await board.spawn("alice", roles=["coder"])
    await board.spawn("bob", roles=["reviewer"])
    model = ScriptedModel({"Write": [step, finish("It is there.")], "*": [finish("Good.", outcome="approved")]})
    async with (
        worktrees(board, root) as places,
        hosting(board, model, workspaces=places, reviewer=rule.role, review=rule),
    ):
        (done,) = await until_ended(board, await board.put("Write", role="coder", **fields))
    assert (done.state, done.merged_into) == ("done", "dugnad/main")
    return any(each.kind == "review" for each in await board.list_tasks())


@pytest.mark.parametrize(
    ("path", "lines", "fields", "asked"),
    [
        ("a.txt", 4, {}, False),
        ("a.txt", 5, {}, True),
        ("a.sql", 1, {}, True),
        ("a.txt", 1, {"review": "reviewer"}, True),  # The task itself asks for it.
        ("Makefile", 1, {}, True),  # Other programs run what it says.
    ],
)
async def test_small_work_is_merged_without_a_review(
    board: Board, tmp_path: Path, path: str, lines: int, fields: dict[str, Any], asked: bool
) -> None:
    rule = ReviewRule(role="reviewer", from_lines=5, paths=("*.sql",))
    made = write(path, "1\n" * lines)
    assert await reviewed(board, new_repository(tmp_path / "p"), made, rule, **fields) is asked


async def test_what_is_no_text_is_reviewed(board: Board, tmp_path: Path) -> None:
    rule = ReviewRule(role="reviewer", from_lines=1_000)
    assert await reviewed(board, new_repository(tmp_path / "p"), shell(r"printf '\0\1' > a.bin"), rule)
