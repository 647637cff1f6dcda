"""Replacing a text: exactly, only where it is meant, with everything else of the file as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dugnad.errors import ToolError
from dugnad.workspace.files.content import Text, binary_kind, decode
from dugnad.workspace.files.edit import replace_text
from dugnad.workspace.files.files import Files

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8), max_size=8)


def replaced(text: str, old: str, new: str, *, every: bool = False) -> str:
    return replace_text(Text(text), old, new, every=every, path="x.py").text.text


@settings(max_examples=300)
@given(before=TEXTS, old=TEXTS, new=TEXTS, after=TEXTS)
def test_an_edit_changes_the_old_text_and_nothing_else(before: str, old: str, new: str, after: str) -> None:
    text = before + old + after
    assume(old and old != new and Text(text).line_end == "\n")
    count = sum(text.startswith(old, at) for at in range(len(text)))
    if count == 1:
        assert replaced(text, old, new) == before + new + after
    else:
        with pytest.raises(ToolError, match="more than once"):
            replaced(text, old, new)
    assert replaced(text, old, new, every=True) == text.replace(old, new)


@settings(max_examples=300)
@given(before=LINES, old=LINES, new=LINES, after=LINES, last=st.sampled_from(["", "\r\n"]))
def test_the_ends_of_lines_stay_as_they_were(
    before: list[str], old: list[str], new: list[str], after: list[str], last: str
) -> None:
    """A model that knows nothing of CRLF sends LF; the file keeps its own, and its missing last one."""
    whole = "\r\n".join([*before, "<<old>>", *old, "<<end>>", *after]) + last
    changed = replaced(whole, "\n".join(["<<old>>", *old, "<<end>>"]), "\n".join(["<<new>>", *new, "."]), every=True)
    assert changed == "\r\n".join([*before, "<<new>>", *new, ".", *after]) + last


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=60), TEXTS.map(str.encode), TEXTS.map(lambda text: text.encode("utf-16"))))
def test_whatever_bytes_a_text_had_it_is_written_back_the_same(data: bytes) -> None:
    assert decode(data).encode() == data


def test_a_file_with_both_kinds_of_line_ends_is_matched_exactly() -> None:
    assert replaced("a\r\nb\nc", "b\nc", "B\nC") == "a\r\nB\nC"
    with pytest.raises(ToolError, match="The old text is not in"):
        replaced("a\r\nb\nc", "a\nb", "x")


def test_a_text_that_is_there_more_than_once_is_named_with_its_lines() -> None:
    with pytest.raises(ToolError, match="at line 1, 3"):
        replaced("x = 1\ny = 2\nx = 1\n", "x = 1", "x = 2")
    with pytest.raises(ToolError, match="more than once: at line 1, 2"):
        replaced("a\na\na\n", "a\na", "b")
    with pytest.raises(ToolError, match="at line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more"):
        replaced("x\n" * 50, "x", "y")


def test_a_text_that_is_not_there_is_answered_with_the_nearest() -> None:
    text = "import os\n\n\ndef area(width, height):\n    return width * height\n\n\nprint(area(2, 3))\n"
    with pytest.raises(ToolError) as caught:
        replaced(text, "def area(width, hight):\n    return width * hight\n", "pass")
    assert str(caught.value).endswith("     4\tdef area(width, height):\n     5\t    return width * height")
    assert "at lines 4 to 5. It is 9" in str(caught.value)


def test_a_slip_in_a_part_of_a_long_line_is_found() -> None:
    text = "first\n" + "call_me(" + ", ".join(f"argument_{number}" for number in range(40)) + ", last=compute(1, 2))\n"
    with pytest.raises(ToolError, match="The nearest is at line 2"):
        replaced(text, "last=compute(1, 3)", "last=3")


def test_a_difference_in_white_space_is_named_as_such() -> None:
    with pytest.raises(ToolError, match=r"at lines 2 to 3. It differs only in white space"):
        replaced("a\n\tif x:\n\t\ty()\n", "    if x:\n        y()", "z")


def test_nothing_like_it_is_told_too() -> None:
    with pytest.raises(ToolError, match="nor anything like it"):
        replaced("aaaa\nbbbb\n", "something else entirely", "x")
    with pytest.raises(ToolError, match="nor anything like it"):
        replaced("", "x", "y")


def test_looking_for_the_nearest_in_a_large_file_is_bounded() -> None:
    with pytest.raises(ToolError, match="The old text is not in"):
        replaced("a b c d e f g h\n" * 30_000, "h g f e d c b a\n" * 5_000, "x")


@pytest.mark.parametrize(("old", "new", "says"), [("", "x", "is empty"), ("x", "x", "nothing to change")])
def test_an_edit_that_means_nothing_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        replaced("x", old, new)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig"])
def test_a_file_keeps_its_encoding(folder: Path, encoding: str) -> None:
    (folder / "x").write_bytes("größe = 1\r\nend\r\n".encode(encoding))
    assert Files(folder).edit("x", "= 1\n", "= 2\n# ß\n") == "Changed x in 1 place, at line 1."
    assert (folder / "x").read_bytes() == "größe = 2\r\n# ß\r\nend\r\n".encode(encoding)


def test_what_the_encoding_of_a_file_cannot_say_is_refused(folder: Path) -> None:
    (folder / "x").write_bytes("größe".encode("latin-1"))
    with pytest.raises(ToolError, match="latin-1, which has no '→'"):
        Files(folder).edit("x", "ö", "→")
    with pytest.raises(ToolError, match="half a character"):
        Files(folder).edit("x", "ö", "\ud800")
    assert (folder / "x").read_bytes() == "größe".encode("latin-1")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"), (b"\xff\xd8\xff\xe0", "a JPEG image"), (b"GIF89a\1", "a GIF image"),
        (b"RIFF\1\2\3\4WEBPVP8 ", "a WebP image"), (b"\0\0\0\x20ftypavif", "an AVIF or HEIF image"),
        (b"%PDF-1.7\n", "a PDF document"), (b"PK\3\4\0\0", "a ZIP archive"), (b"\x7fELF\2", "a program (ELF)"),
        (b"SQLite format 3\0", "an SQLite database"), (b"abc\0def", "a binary file"), (b"BM\0\0", "a BMP image"),
        (b"BM is a text", None), (b"", None), ("größe".encode("utf-16"), None), (b"gr\xf6\xdfe", None),
    ],
)  # fmt: skip
def test_what_is_no_text_is_known_by_its_beginning(data: bytes, kind: str | None) -> None:
    assert binary_kind(data) == kind
