"""What the documents show is run, and what they name exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dugnad.board.replay import EVENT_KINDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("which", [0, 1], ids=["teammate", "board"])
def test_the_readmes_examples_print_what_it_says(folder: Path, which: int) -> None:
    (folder / "example.py").write_text(blocks(README, "python")[which])
    ran = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stderr == ""
    assert ran.stdout == blocks(README, "text")[which]


def test_the_demo_loses_nothing(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "board_demo.py"],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)}, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "kill -9" in ran.stdout
    assert "7 tasks done, 1 skipped; none lost, none done twice." in ran.stdout


def test_the_python_of_the_operating_page_is_python() -> None:
    for block in blocks((ROOT / "docs" / "operating.md").read_text(), "python"):
        body = "".join(f"    {line}\n" for line in block.splitlines())
        compile(f"async def shown():\n{body}\n    pass\n", "operating.md", "exec")


def test_links_and_named_files_exist() -> None:
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong = []
    for page in PAGES:
        text = page.read_text()
        linked = [target for target in re.findall(r"\]\(([^)#:]+)\)", text) if not (page.parent / target).exists()]
        named = [name for name in re.findall(r"`(test_\w+)`", text) if name not in tests]
        made = [f"make {name}" for name in re.findall(r"`make ([a-z-]+)`", text) if name not in targets]
        wrong += [f"{page.name} names {each}" for each in (*linked, *named, *made)]
    assert wrong == []


def test_the_map_has_every_module_and_no_other() -> None:
    there = {path.name for path in (ROOT / "src" / "dugnad").rglob("*.py") if path.parent.name not in ("cli", "chat")}
    shown = (ROOT / "ARCHITECTURE.md").read_text().split("## The map")[1].split("\n## ")[0]
    named = set(re.findall(r"[a-z_]+\.py", shown)) - {"command.py"}
    assert named == there - {"__init__.py", "__main__.py", "command.py"}


def test_the_concepts_page_lists_every_kind_of_event_and_no_other() -> None:
    section = (ROOT / "docs" / "concepts.md").read_text().split("## Events")[1].split("\n## ")[0]
    listed = [kind for line in section.splitlines() if line.startswith("|") for kind in re.findall(r"`(\w+)`", line)]
    assert sorted(listed) == sorted(EVENT_KINDS)


def test_named_modules_exist() -> None:
    folders = ("src", "simulation", "tests", "bench", "examples")
    there = [str(path) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert [
        f"{page.name} names {name}"
        for page in PAGES
        if page.name != "operating.md"
        for name in re.findall(r"`([a-z_/]+\.py)`", page.read_text())
        if not any(path.endswith(f"/{name}") for path in there)
    ] == []


def test_each_cell_of_who_may_do_what_names_a_test() -> None:
    page = (
        (ROOT / "docs" / "operating.md").read_text().split("## What is trusted, and what is not")[1].split("\n## ")[0]
    )
    _, _, *rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    assert len(rows) == 10
    for who, *cells in rows:
        assert len(cells) == 7, who
        for cell in cells:
            assert re.search(r": `test_\w+` *$", cell), f"{who}: {cell}"


def test_every_decision_has_its_three_parts_and_is_short() -> None:
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        text = page.read_text()
        assert len(text.splitlines()) <= 60, page.name
        for part in ("Context", "Decision", "What we give up"):
            assert f"## {part}" in text, f"{page.name} has no {part}"


def test_the_documents_speak_of_the_project_alone() -> None:
    for page in PAGES:
        assert "MEASURED" not in page.read_text(), f"{page.name} has a figure missing"
        assert not re.search(r"(?<!\w)/(?:root|work|home)/", page.read_text()), f"{page.name} names a machine's path"
