"""The files of a workspace as tools: `Team.open(..., tools=file_tools(Files(root)))`.

They act on the world outside the board, so they are not marked as our own: a host that lost its lease runs none. What
only reads may be run again after a crash. What writes may not: by then somebody else may have gone on from it.
"""

from __future__ import annotations

from ..workspace.files.files import LINES_MAX, Files
from .tool import Tool


def file_tools(files: Files) -> tuple[Tool, ...]:
    """All six, for one tree. Plain functions, which the runtime calls in threads."""
    return (*_reading(files), *_searching(files), *_writing(files))


def _reading(files: Files) -> tuple[Tool, ...]:
    def read_file(path: str, first_line: int = 1, lines: int = LINES_MAX) -> str:
        """Read a text file, with line numbers. Of a picture or another binary file you are told its kind and size.

        The number and the tab before each line are not part of the file.

        Args:
            path: The file, relative to the workspace.
            first_line: The line to begin with, counted from 1.
            lines: How many lines at most.
        """
        return files.read(path, first_line=first_line, lines=lines)

    def list_dir(path: str = ".") -> str:
        """List a folder: folders end with a slash, files have their size.

        Args:
            path: The folder, relative to the workspace.
        """
        return files.list_dir(path)

    return Tool(read_file, safe=True, keyed=True), Tool(list_dir, safe=True, keyed=True)


def _searching(files: Files) -> tuple[Tool, ...]:
    def glob(pattern: str) -> str:
        """Find files by name. What .gitignore names is left out.

        Args:
            pattern: Like "src/**/*.py" or "*.{js,ts}". Without a slash it means names in any folder.
        """
        return files.glob(pattern)

    def grep(pattern: str, path: str = ".", include: str = "", ignore_case: bool = False, context: int = 0) -> str:
        """Find lines by a regular expression (Python's), in all files beneath a folder or in one file.

        What .gitignore names and what is not text is left out.

        Args:
            pattern: The expression. A line matches if it is found anywhere in it.
            path: The folder or the file, relative to the workspace.
            include: Only in files like this, for example "*.py" or "src/**/*.{js,ts}".
            ignore_case: Whether A and a are the same.
            context: How many lines to show before and after each.
        """
        return files.grep(pattern, path, include=include, ignore_case=ignore_case, context=context)

    return Tool(glob, safe=True, keyed=True), Tool(grep, safe=True, keyed=True)


def _writing(files: Files) -> tuple[Tool, ...]:
    def write_file(path: str, text: str) -> str:
        """Make a file, with the folders it needs, or replace all that is in it. To change a part, use edit_file.

        Args:
            path: The file, relative to the workspace.
            text: All that is to be in it.
        """
        return files.write(path, text)

    def edit_file(path: str, old: str, new: str, every: bool = False) -> str:
        """Replace a text in a file by another. The old text must be in the file exactly as given, and only once.

        Args:
            path: The file, relative to the workspace.
            old: The text to replace, with its white space, and without line numbers.
            new: The text to put in its place.
            every: Replace it wherever it is.
        """
        return files.edit(path, old, new, every=every)

    return Tool(write_file), Tool(edit_file)
