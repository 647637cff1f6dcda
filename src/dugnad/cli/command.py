"""What every command shares: the board it works on, how it prints, and how it fails.

A failure is one sentence on standard error and an exit code: 2 for wrong usage, 1 for a failure, 130 for an interrupt.
With `--json`, standard output then has one object, `{"error": ...}`. It is no failure if the reader of a pipe closes it
early (`| head`). It is one if standard output is closed or full.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from ..errors import BadInput, BoardReadOnly, BoardUnreachable, DugnadError
from ..safe_open import NAMED_BYTES_MAX

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..board import Board
    from ..config.project import Project
    from ..config.user import UserSettings
    from ..view.json import Shape

EXIT_FAILED, EXIT_BAD_USE, EXIT_INTERRUPTED = 1, 2, 130
_UNPRINTED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_PIPE_WIDTH = 1_000_000  # Lines are not wrapped in a pipe.
_LOG, _BOARD = "dugnad.log_level", "dugnad.board"  # Where the values of these options are kept.
_LOG_LEVELS = ("debug", "info", "warning", "error")
ODD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # What odd values on a board lead to.
FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)
Reads = bool | Callable[[dict[str, Any]], bool]
Picture = Callable[[], "RenderableType"]  # Called only when it is shown, so that rich is not imported for JSON.


@dataclass(frozen=True, slots=True)
class CommandContext:
    """A running command: its board, and how it answers."""

    board: Board
    as_json: bool

    def answer(self, shape: Shape, picture: Picture | str) -> None:
        answer(self.as_json, shape, picture)


def answer(as_json: bool, shape: Shape, picture: Picture | str) -> None:
    """Print the JSON shape for a program, or the picture for a person."""
    if as_json:
        show_json(shape)
    else:
        show(picture if isinstance(picture, str) else picture())


def verb(
    name: str, *, example: str, makes_board: bool = False, only_reads: Reads = False
) -> Callable[[Callable[..., Awaitable[Any]]], Any]:
    """Turn `async def name(call, **arguments)` into a command with `--board`, `--json` and an example in its help.

    `only_reads`: the command changes nothing on the board, always or with these arguments. Any other command needs a
    project that the user has accepted.
    """

    def wrap(work: Callable[..., Awaitable[Any]]) -> click.Command:
        @functools.wraps(work)
        def run(*, as_json: bool, **arguments: Any) -> Any:
            import asyncio  # Imported here, so that help stays fast.

            project = here()
            url = board_url(project)
            if not (only_reads(arguments) if callable(only_reads) else only_reads):
                from .trust import require_trust

                require_trust(project, url, makes=makes_board, asks=not as_json)

            async def once() -> Any:
                async with opened(project, url, makes=makes_board) as there:
                    return await work(CommandContext(there, as_json), **arguments)

            return asyncio.run(once())

        command = click.command(name, epilog=examples(example))(run)
        return json_option(board_option(command))  # They come last in the help.

    return wrap


def kept_option(*names: str, key: str, **settings: Any) -> Callable[[FC], FC]:
    """An option that is kept for the whole command, so that it may stand before the command's name or after it."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        context.meta.update({key: value} if value else {})

    return click.option(*names, expose_value=False, callback=keep, **settings)


def log_option(variable: str | None = None) -> Callable[[FC], FC]:
    return kept_option(
        "--log-level", key=_LOG, type=click.Choice(_LOG_LEVELS, case_sensitive=False), envvar=variable,
        show_envvar=True,
        help="Log from this level on: to standard error, or to a file while the live view is shown.",
    )  # fmt: skip


def start_log(*, draws: bool = False, keeps: bool = False, quiet: bool = False) -> None:
    """Begin the log that was asked for. `draws`: the verb draws on a terminal. `keeps`: there is a file in any case."""
    if (level := click.get_current_context().meta.get(_LOG)) or keeps:
        from ..logs.handlers import start_logging
        from ..safe_open import user_state

        screen = draws and not quiet and sys.stdout.isatty()
        told = start_logging(level, keeps=keeps, screen=screen, folder=user_state(os.environ, "logs"))
        with reader_may_leave():
            if told and not quiet:
                click.echo(told)


board_option = kept_option("--board", key=_BOARD, metavar="URL", help="The board to use instead of the project's own.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; docs/commands.md describes it.")


def examples(text: str) -> str:
    """Example commands for the end of a help text; click does not wrap them."""
    return "\b\nExample:\n" + "\n".join(f"  {each.strip()}" for each in text.strip().splitlines())


# The board.


def here() -> Project:
    """The project of the working folder."""
    from ..config.project import read_project

    return read_project(working_folder())


def working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise BadInput("The working folder is gone, or you may not read it; change to another one.") from None


def board_url(project: Project, user: UserSettings | None = None) -> str:
    """Where the board is: `--board` > DUGNAD_BOARD > dugnad.toml > .dugnad/board.db under the project's root."""
    return project.board_url(board_given(), os.environ, user)


def typed_board() -> bool:
    """Whether the user named the board, by an option or by DUGNAD_BOARD."""
    return bool(board_given() or os.environ.get("DUGNAD_BOARD"))


def board_given(context: click.Context | None = None) -> str | None:
    """The value of `--board`, before the command or after it."""
    context = context or click.get_current_context(silent=True)
    return context.meta.get(_BOARD) if context is not None else None


@asynccontextmanager
async def opened(project: Project, url: str, *, makes: bool = False) -> AsyncIterator[Board]:
    """Open the board of this command, and close it afterwards. With `makes`, a new board is made if there is none."""
    from ..board import open_board

    path = file_of(url)
    if path is not None and not makes and not exists(path):
        raise BoardUnreachable(f"There is no board at {path} yet; `dugnad add` or `dugnad run` makes one.")
    if path is not None and makes:
        make_folder(path.parent)
    async with await open_board(url, limits=project.limits, make=makes) as board:
        try:
            yield board
        except ODD as odd:
            from .unaccepted import blame

            await blame(board, url, odd)
            raise


def file_of(url: str) -> Path | None:
    """The file of a SQLite board; None for a board that has none."""
    from ..board.open import sqlite_path

    return sqlite_path(url) if url.startswith("sqlite://") else None


def shown_url(url: str) -> str:
    """A board's address without a password: a path, or a server and its database."""
    path = file_of(url)
    if path is not None:
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as trouble:
        raise BoardUnreachable(f"The board at {path} cannot be reached: {trouble.strerror}.") from None


def make_folder(folder: Path) -> None:
    """Make a board's folder. A folder `.dugnad` is inspected, kept private, and kept out of version control."""
    from ..board.store.disk import enter
    from ..safe_open import OWN

    if folder.name == OWN:
        enter(folder)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise BoardUnreachable(f"{folder} is not a folder; move it, or name another board with --board.") from None
    except OSError as trouble:
        raise BoardReadOnly(f"The folder {folder} for the board cannot be made: {trouble.strerror}.") from None


# Printing.


def show(what: RenderableType) -> None:
    """Print for a person; in a pipe without colour, wrapping or trailing spaces."""
    screen = console()
    if screen.is_terminal:
        screen.print(what)
        return
    with screen.capture() as caught:
        screen.print(what)
    text = "\n".join(each.rstrip() for each in caught.get().split("\n"))
    sys.stdout.write(text)
    sys.stdout.flush()


def console() -> Console:
    from ..view.console import SafeConsole

    style: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
    if sys.stdout.isatty():
        return SafeConsole(**style)
    return SafeConsole(**style, width=_PIPE_WIDTH, color_system=None, force_terminal=False, force_interactive=False)


def show_json(shape: Shape) -> None:
    from ..view.json import as_line

    sys.stdout.write(as_line(shape) + "\n")
    sys.stdout.flush()


def text_or_stdin(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A text; `-` reads standard input. This happens before the event loop runs, so that Ctrl-C works."""
    if value != "-" or context.resilient_parsing:
        return value
    return utf8(read_stdin(), "Standard input")


def read_stdin() -> bytes:
    """All of standard input, up to a limit."""
    data = sys.stdin.buffer.read(NAMED_BYTES_MAX + 1)
    if len(data) > NAMED_BYTES_MAX:
        raise BadInput(f"Standard input has more than {NAMED_BYTES_MAX // 1024} KiB; write it to a file and name that.")
    return data


def utf8(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{what} is not UTF-8 text; save it as UTF-8.") from None


def confirm(question: str, *, refusal: BadInput) -> bool:
    """Ask on the terminal. Without a terminal, refuse."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise refusal
    return click.confirm(question, err=True)


# Failing.


class CommandGroup(click.Group):
    """A group of commands whose failures are one sentence and an exit code."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            open_streams()
            code = super().main(given, prog_name or "dugnad", **extra)
        except click.UsageError as wrong:
            where = f" Try `{wrong.ctx.command_path} --help`." if wrong.ctx is not None else ""
            if "unexpected extra argument" in wrong.message:
                where = f"; put a text of several words in quotes.{where}"
            code = fail(wrong.format_message() + where, kind="BadUse", code=EXIT_BAD_USE, args=given)
        except click.ClickException as wrong:
            code = fail(wrong.format_message(), kind="BadUse", code=wrong.exit_code, args=given)
        except DugnadError as error:
            bad = isinstance(error, BadInput)
            code = fail(str(error), kind=type(error).__name__, code=EXIT_BAD_USE if bad else EXIT_FAILED, args=given)
        except (click.Abort, KeyboardInterrupt):
            code = fail("Interrupted.", kind="Interrupted", code=EXIT_INTERRUPTED, args=given)
        except OSError as trouble:
            code = fail(_world(trouble), kind="OSError", code=EXIT_FAILED, args=given)
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:  # The reader closed the pipe.
            forget(sys.stdout)
            raise click.exceptions.Exit(0) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # The reader closed the pipe; the command has taken effect.
            forget(sys.stdout)
            return 0
        return code


def open_streams() -> None:
    """Open standard streams that are closed, since the next opened file would otherwise take their place.

    A command can work without standard input and standard error. Without standard output it does not begin.
    """
    lost = []
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            lost.append(name)
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, io.TextIOWrapper(io.FileIO(number, mode, closefd=False), encoding="utf-8"))
        elif mode == "w" and hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="replace")  # For a terminal that cannot show a character.
    if "stdout" in lost:
        raise BadInput("Standard output is closed, so nothing was done; redirect it to a file or to /dev/null.")


def _world(trouble: OSError) -> str:
    """A sentence for an OSError that no caller handled."""
    if trouble.filename is None and trouble.errno in _UNPRINTED:  # Errors of files have a file name.
        forget(sys.stdout)
        return (
            f"The answer could not be printed: {trouble.strerror or trouble}. The command may have taken effect; look "
            "with `dugnad log` before you repeat it."
        )
    return f"{trouble.filename or 'A file or a device'} cannot be used: {trouble.strerror or trouble}."


def fail(message: str, *, kind: str, code: int, args: list[str]) -> int:
    """Print the error for people, and with `--json` also for programs."""
    from ..text import plain

    try:
        click.echo(f"dugnad: {plain(message)}", err=True)
    except OSError:  # If this cannot be printed, the exit code must do.
        forget(sys.stderr)
    if "--json" in args:
        from ..view.json import error_shape

        with reader_may_leave():
            show_json(error_shape(kind, message, code))
    return code


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """If the reader left, or the disk is full, the work goes on, and the exit code tells how it ended."""
    try:
        yield
    except OSError:
        forget(sys.stdout)


def forget(stream: TextIO) -> None:
    """Drop what is still in the buffer; otherwise the interpreter would complain at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
