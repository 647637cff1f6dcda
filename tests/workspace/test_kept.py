"""Files that the runtime keeps, in folders that several processes use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dugnad.workspace.files.kept import files_in, remove_files


def test_a_file_that_another_process_has_just_removed_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "one.log").write_text("1")
    (folder / "two.log").write_text("22")
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda at: ["gone.log", *listed(at)])
    assert sorted((name, about.st_size) for about, name in files_in(folder, ".log")) == [("one.log", 1), ("two.log", 2)]
    remove_files(folder, "gone.log", "one.log")
    assert listed(folder) == ["two.log"]
