"""Finding files by name and by content: what is meant, in order, without what is ignored, and never without an end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dugnad.errors import ToolError
from dugnad.workspace.files.files import Files
from dugnad.workspace.files.patterns import alternatives, compile_pattern, file_pattern, fits, is_ignored, read_rules
from dugnad.workspace.files.search import SearchLimits
from tests.workspace.attacking import EXCHANGING, attacker


@pytest.fixture
def root(folder: Path) -> Path:
    for name, text in {
        "README.md": "# Title\nneedle\n", "src/app.py": "import os\nneedle = 1\nend\n", "src/lib/deep.py": "x\n",
        "src/app.js": "Needle\n", "build/out.py": "needle\n", "notes.log": "needle\n", "keep.log": "needle\n",
        "src/lib/local.tmp": "needle\n", ".git/config": "needle\n", ".dugnad/board": "needle\n", ".hidden": "needle\n",
        ".gitignore": "# What is made\nbuild/\n*.log\n!keep.log\n", "src/lib/.gitignore": "/*.tmp\n",
        ".dugnad-0.tmp": "needle\n",
    }.items():  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0needle\n")
    (folder / "link.py").symlink_to("src/app.py")
    return folder


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["link.py", "src/app.py", "src/lib/deep.py"]),
        ("src/*.py", ["src/app.py"]),
        ("./src/**/*.py", ["src/app.py", "src/lib/deep.py"]),
        ("src/**", ["src/app.js", "src/app.py", "src/lib/.gitignore", "src/lib/deep.py"]),
        ("**/*.{js,md}", ["README.md", "src/app.js"]),
        ("**/deep.py", ["src/lib/deep.py"]),
        ("src/app.[jp]?", ["src/app.js", "src/app.py"]),
        ("*.log", ["keep.log"]),
        (".hid*", [".hidden"]),
        ("app.PY", ["[No file is like 'app.PY'.]"]),
        (".git/*", ["[No file is like '.git/*'.]"]),
    ],
)
def test_files_are_found_by_pattern_without_what_is_ignored(root: Path, pattern: str, found: list[str]) -> None:
    assert Files(root).glob(pattern).splitlines() == found


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "a/../../*", "", "x" * 2_000, "{a,b}" * 10, "a\0"])
def test_a_pattern_that_makes_no_sense_is_refused(root: Path, pattern: str) -> None:
    with pytest.raises(ToolError):
        Files(root).glob(pattern)


def test_an_absolute_pattern_beneath_the_root_is_understood(root: Path) -> None:
    assert Files(root).glob(f"{root}/src/*.py") == "src/app.py"


def test_lines_are_found_without_what_is_ignored_or_no_text(root: Path) -> None:
    assert Files(root).grep("needle").splitlines() == [
        ".hidden:1:needle", "README.md:2:needle", "keep.log:1:needle", "src/app.py:2:needle = 1",
    ]  # fmt: skip


def test_a_search_can_be_narrowed_and_widened(root: Path) -> None:
    files = Files(root)
    assert files.grep("needle", "src", ignore_case=True).splitlines() == [
        "src/app.js:1:Needle", "src/app.py:2:needle = 1",
    ]  # fmt: skip
    assert files.grep("needle", include="*.{md,rst}") == "README.md:2:needle"
    assert files.grep("^needle", "src/app.py", context=1).splitlines() == [
        "src/app.py-1-import os", "src/app.py:2:needle = 1", "src/app.py-3-end",
    ]  # fmt: skip
    assert files.grep("needle", "src/lib") == "[No line matches 'needle'.]"
    assert files.grep("needle", "link.py") == "src/app.py:2:needle = 1"


def test_what_is_asked_for_by_its_own_name_is_searched_though_it_is_ignored(root: Path) -> None:
    assert Files(root).grep("needle", "notes.log") == "notes.log:1:needle"
    assert Files(root).grep("needle", "build") == "build/out.py:1:needle"


def test_what_is_wrong_with_a_search_is_told(root: Path) -> None:
    files = Files(root)
    for pattern, path, says in (
        ("(a", ".", "not a regular expression"), ("", ".", "between 1 and"), ("x", "nowhere", "There is no"),
        ("x", "../x", "leads out of"), ("x" * 2_000, ".", "between 1 and"), ("x", "README.md/x", "not a folder"),
    ):  # fmt: skip
        with pytest.raises(ToolError, match=says):
            files.grep(pattern, path)
    with pytest.raises(ToolError, match="context is between"):
        files.grep("x", context=1_000)


def test_an_expression_that_never_ends_is_ended(root: Path) -> None:
    (root / "a").write_text("a" * 60 + "b\n")
    with pytest.raises(ToolError, match="took longer than"):
        Files(root, search=SearchLimits(seconds_max=0.1)).grep("^(a+)+$", "a")


def test_a_search_is_bounded_and_says_so(root: Path) -> None:
    for number in range(30):
        (root / f"many{number:02}").write_text("needle\n" * 3)
    (root / "large").write_text("needle\n" * 10_000)
    (root / "wide").write_text("x" * 5_000 + "the needle" + "y" * 5_000)
    limits = SearchLimits(matches_max=5, file_bytes_max=20_000, line_chars_max=30)
    files = Files(root, search=limits)
    assert files.grep("needle", include="many*").endswith("[Only the first 5 are shown.]")
    assert files.glob("many*").splitlines()[4:] == ["many04", "[Only the first 5 are shown.]"]
    assert files.grep("needle", include="large") == ("[No line matches 'needle'.]\n[1 too large to be searched.]")
    assert files.grep("the needle", "wide") == f"wide:1:…{'x' * 10}the needle{'y' * 10}…"
    few = Files(root, search=SearchLimits(entries_max=10))
    assert few.glob("*").endswith("[Only 10 names were looked at.]")
    little = Files(root, search=SearchLimits(bytes_max=10))
    assert little.grep("needle").endswith("[Only 10 bytes were searched.]")
    assert len(Files(root, output_chars_max=200).glob("*")) < 300


def test_a_deep_tree_and_a_circle_of_links_end(folder: Path) -> None:
    deep = folder
    for _ in range(80):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "bottom").touch()
    (folder / "d" / "loop").symlink_to("..")
    assert Files(folder).glob("*") == "d/loop\n[Nothing deeper than 60 folders was looked at.]"


def test_pipes_are_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / ".gitignore")
    assert Files(folder).grep("x", "pipe") == "[No line matches 'x'.]"
    assert Files(folder).glob("*") == ".gitignore\npipe"


def test_a_renaming_attacker_never_gets_a_search_outside(root: Path) -> None:
    for name, text in (("root/a/file", "inside"), ("root/b/file", "inside"), ("outside/file", "outside")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    files = Files(root / "root")
    with attacker(root / "root", EXCHANGING):
        for _ in range(15):
            assert "outside" not in files.grep("side", include="**/file").replace("[No line matches", "")
        for _ in range(500):
            found = files.glob("file").splitlines()
            assert set(found) <= {"a/file", "b/file", "file", *(f"link{number}/file" for number in range(5))}


NAME = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
RULE = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "!", "/", "!/"]),
    st.lists(st.one_of(NAME, st.sampled_from(["*", "**", "a*", "?", "[ab]", "*.a"])), min_size=1, max_size=3).map(
        "/".join
    ),
    st.sampled_from(["", "/"]),
    st.sampled_from(["", " "]),
)


@settings(max_examples=60)
@given(
    rules=st.lists(RULE, min_size=1, max_size=4),
    paths=st.lists(st.lists(NAME, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8),
)
@example(rules=["a/"], paths=["b/a/b", "a/b", "b/a"])
@example(rules=["a/**", "!a/b"], paths=["a/b", "a/a"])
def test_what_is_ignored_is_what_git_ignores(
    rules: list[str], paths: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Git says of each path whether a rule ignores it, or a folder above it."""
    root = tmp_path_factory.mktemp("repository")
    git = ["git", "-C", str(root), "-c", "core.excludesFile=/dev/null"]
    subprocess.run([*git, "init", "-q"], check=True)
    (root / ".gitignore").write_text("\n".join(rules) + "\n")
    asked = subprocess.run(
        [*git, "check-ignore", "--no-index", "--stdin"],
        input="\n".join(paths),
        capture_output=True,
        text=True,
        check=False,
    )
    known = read_rules("\n".join(rules), ())
    for path in paths:
        names = tuple(path.split("/"))
        ignored = any(is_ignored(names[:count], known, is_folder=True) for count in range(1, len(names)))
        ignored = ignored or is_ignored(names, known, is_folder=False)
        assert ignored == (path in asked.stdout.splitlines()), (path, rules)


def test_patterns_cannot_run_away() -> None:
    assert not fits(compile_pattern("*a" * 200 + "b"), ("a" * 255,))
    assert not fits(compile_pattern("**/a/" * 100 + "b"), ("a",) * 100)
    assert file_pattern("**/" * 50 + "x")(("a",) * 50 + ("x",))
    assert sorted(alternatives("{a,b}.{c,{d,e}}")) == ["a.c", "a.d", "a.e", "b.c", "b.d", "b.e"]
