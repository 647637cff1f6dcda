"""The one reader of files that people write. It is strict, and trusts nothing that it reads.

Frozen dataclasses describe a file: a field is a key, and its annotation says which values are right. The type alone is
enough for text, for numbers above zero and for tables. `Annotated` adds a least value or a pair of bounds, another key,
or a function that checks the value. Every refusal names the file and the place in it. Rules across the keys of one
table are in its `__post_init__`, and the reader puts the place before their words.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import BadInput
from ..safe_open import owners, read_named
from ..tools.policy import Rules

T = TypeVar("T")
_FILE_BYTES_MAX = 64 * 1024  # Long prompts have files of their own.
_DOTS_MAX = 256  # In one line: the parser takes the cube of the parts of a dotted key.
_KEYS_SHOWN_MAX = 14
_NUMBER_MAX = 2**53  # Exact as a JSON number everywhere.
_SECRET = re.compile(r"key|secret|token|passw|credential|auth|endpoint|ur[il]$|host|proxy|header", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLocation:
    """Where a value is in which file, and what its check must know about the file."""

    file: str
    path: tuple[str, ...] = ()
    secrets: str = ""  # What a refusal says about an unknown key that looks like a secret.
    root: Path | None = None  # The folder that must hold the file, and every file it names.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def under(self, key: str) -> FileLocation:
        return replace(self, path=(*self.path, key))

    @property
    def table(self) -> str:
        return f"[{'.'.join(map(_bare, self.path))}]" if self.path else "the top level"

    def __str__(self) -> str:
        *above, key = self.path or ("it",)
        return f"{self.file}: {f'{replace(self, path=tuple(above)).table} ' if above else ''}{_bare(key)}"


Kind = Callable[[FileLocation, Any], Any]  # Returns the value as the program uses it, or refuses it in one sentence.


@dataclass(frozen=True, slots=True)
class Key:
    """The name of a field in a file; a text alone means the same. If a field has several, a file uses one."""

    name: str
    kind: Kind | None = None  # How this key is read, if not as the field's annotation says.


UNREAD = Key("")  # No file can set such a field.


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text that matches an expression. `says`: the refusal behind the place, with {} for the value."""

    expression: str
    says: str

    def __call__(self, place: FileLocation, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.expression, value):
            raise BadInput(f"{place}{self.says.replace('{}', shown(value))}")
        return value


# Files.


def user_file(environment: Mapping[str, str]) -> Path | None:
    """Where the user's config.toml would be."""
    for variable, below in (("XDG_CONFIG_HOME", "dugnad/config.toml"), ("HOME", ".config/dugnad/config.toml")):
        if environment.get(variable, "").startswith("/"):
            return Path(environment[variable], below)
    return None


def read_toml(
    path: Path, place: FileLocation, *, bytes_max: int = _FILE_BYTES_MAX, dots_max: int = _DOTS_MAX
) -> dict[str, Any]:
    source = read_text(path, place.file, place, bytes_max=bytes_max).replace("\r\n", "\n")
    for number, line in enumerate(source.split("\n"), start=1):
        if line.count(".") > dots_max:
            raise BadInput(
                f"{place.file}: line {number} has more than {dots_max} dots; put long text into a prompt_file."
            )
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as trouble:
        raise BadInput(f"{place.file} is not TOML: {trouble}.") from None
    except ValueError:  # Python refuses to read numbers of thousands of digits.
        raise BadInput(f"{place.file} has a number or a date that cannot be read; correct it.") from None
    except RecursionError:
        raise BadInput(f"{place.file} is nested too deeply; nothing in it needs more than three levels.") from None


def read_text(path: Path, label: str, place: FileLocation, *, bytes_max: int = _FILE_BYTES_MAX) -> str:
    """Read a text file that anyone may have put there. Refuse a device, a link out of the root, and a file of another
    user."""
    if place.root is not None and leads_out(path, place.root):
        raise BadInput(f"{label} leads out of the project; keep the file inside it.")
    content, owner = read_named(path, label, bytes_max)
    if owner not in owners(place.environment):
        raise BadInput(
            f"{label} belongs to another user, who could make your teammates do anything: "
            f"look at it, then make it yours with `chown`."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        raise BadInput(f"{label} is not UTF-8 text (at byte {trouble.start}); save it as UTF-8.") from None


def leads_out(path: Path, folder: Path) -> bool:
    """Whether the real file at `path` is outside the folder."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


# Tables.


def read(kind: type[T], place: FileLocation, given: Any) -> T:
    """The record that a table fills, with its defaults where the table says nothing."""
    record: Any = kind
    keys, values = _keys(record), dict[str, Any]()
    _refuse_unknown(place, given, keys)
    for key, value in given.items():
        name, reads = keys[key]
        if name in values:
            other = next(each for each in given if keys[each][0] == name)
            raise BadInput(f"{place.file}: {place.table} has {other} and {key}; keep one.")
        values[name] = reads(place.under(key), value)
    for each in fields(record):
        if each.name == "name" and "name" not in keys:
            values["name"] = place.path[-1]  # Its table names it.
        if each.name not in values and each.default is MISSING and each.default_factory is MISSING:
            raise BadInput(f'{place.file}: {place.table} has no {each.name}; write {each.name} = "...".')
    try:
        return kind(**values)
    except BadInput as wrong:
        raise BadInput(f"{place.file}: {place.table} {wrong}") from None


def parts(*kinds: type) -> Kind:
    """One table that fills several records."""

    def read_all(place: FileLocation, given: Any) -> tuple[Any, ...]:
        whose = {key: kind for kind in kinds for key in _keys(kind)}
        _refuse_unknown(place, given, whose)
        return tuple(read(kind, place, {key: given[key] for key in given if whose[key] is kind}) for kind in kinds)

    return read_all


def said(record: Any) -> dict[str, Any]:
    """The fields of a record that are set; None means not set."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return {name: value for name, value in values.items() if value is not None}


def as_given(found: Any, given: Any) -> Any:
    """The keys of a file and nothing else, with their values as they were read."""
    if not isinstance(given, dict) or isinstance(found, Rules):
        return found
    if isinstance(found, Mapping):
        return {key: as_given(each, given[key]) for key, each in found.items()}
    records = found if isinstance(found, tuple) else (found,)
    values = {key: getattr(each, name) for each in records for key, (name, _) in _keys(each.__class__).items()}
    return {key: as_given(values[key], value) for key, value in given.items()}


@cache
def _keys(kind: Any) -> dict[str, tuple[str, Kind]]:
    """The keys of a record's table, each with its field and how it is read."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        marks = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Key | str)]
        for key in (Key(each) if isinstance(each, str) else each for each in marks or [name]):
            if key.name:
                found[key.name] = (name, key.kind or kind_of(hint))
    return found


# Kinds, by annotation.


def kind_of(hint: Any, *marks: Any) -> Kind:
    """How a value is read: by the function among its marks, or else by its type."""
    if hasattr(hint, "__metadata__"):
        hint, marks = hint.__origin__, (*marks, *hint.__metadata__)
    own: list[Kind] = [each for each in marks if callable(each)]
    if own:
        return own[0]
    origin, inner = get_origin(hint), [each for each in get_args(hint) if each is not NoneType]
    if origin in (Union, UnionType):
        return kind_of(inner[0], *marks)
    if origin is Literal:
        return partial(_one_of, inner)
    if origin is tuple:
        return partial(_rows if is_dataclass(inner[0]) else _several, kind_of(inner[0]))
    if origin is Mapping:
        return partial(_named, kind_of(inner[0]), kind_of(inner[1]))
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(read, hint)
    bounds = next((each for each in marks if isinstance(each, int | tuple)), None)
    least, most = bounds if isinstance(bounds, tuple) else (bounds, _NUMBER_MAX)
    return {str: text, bool: _flag}.get(hint) or partial(_number, hint, least, most)


def text(place: FileLocation, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise BadInput(f"{place} must be text, not {shown(value)}.")
    return value


def mapping(place: FileLocation, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise BadInput(f"{place} must be a table, not {shown(given)}.")
    return given


def _flag(place: FileLocation, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{place} must be true or false, not {shown(value)}.")
    return value


def _number(kind: type, least: int | None, most: float, place: FileLocation, value: Any) -> Any:
    least = 1 if kind is int and least is None else least
    right = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if not right or not (value > 0 if least is None else value >= least) or not value <= most:  # Also nan.
        start, more, to = ("above 0", "", "and up to") if least is None else (f"from {least}", " upwards", "to")
        words = f"{start}{more}" if most >= _NUMBER_MAX else f"{start} {to} {most:.12g}"
        raise BadInput(f"{place} must be a {'whole ' * (kind is int)}number {words}, not {shown(value)}.")
    return kind(value)


def _one_of(choices: list[str], place: FileLocation, value: Any) -> str:
    if value not in choices:
        raise BadInput(f"{place} must be one of {', '.join(choices)}, not {shown(value)}.")
    return str(value)


def _several(each: Kind, place: FileLocation, value: Any) -> tuple[Any, ...]:
    """A list; a single value means a list of one."""
    return tuple(each(place, one) for one in (value if isinstance(value, list) else [value]))


def _rows(each: Kind, place: FileLocation, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BadInput(f"{place} must be written as [[{place.path[-1]}]], once for each, not as {shown(value)}.")
    titles = [row.get("title", row.get("name")) for row in value]
    names = [title if isinstance(title, str) and title.strip() else str(at) for at, title in enumerate(titles, start=1)]
    return tuple(each(place.under(called), row) for called, row in zip(names, value, strict=True))


def _named(name: Kind, each: Kind, place: FileLocation, given: Any) -> Mapping[str, Any]:
    """Tables or values under names that the writer chooses."""
    found = {name(place, key): each(place.under(key), value) for key, value in mapping(place, given).items()}
    return MappingProxyType(found)


# Words.


def shown(value: Any) -> str:
    """A value in a sentence: short, and harmless to a terminal."""
    found = repr(value) if not isinstance(value, dict | list) else "a table" if isinstance(value, dict) else "a list"
    return found if len(found) <= 60 else f"{found[:56]}...{found[-1]}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word."""
    words = sorted(known)
    if close := difflib.get_close_matches(word, words, n=1, cutoff=0.6):
        return f"did you mean {close[0]!r}?"
    if 0 < len(words) <= _KEYS_SHOWN_MAX:
        return f"there {'are' if len(words) > 1 else 'is'} {', '.join(words)}."
    return "docs/configuration.md lists what there is."


def _refuse_unknown(place: FileLocation, given: Any, known: Collection[str]) -> None:
    for key in mapping(place, given):
        if key not in known:
            close = difflib.get_close_matches(key, list(known), n=1, cutoff=0.8)
            if place.secrets and not close and _SECRET.search(key):
                raise BadInput(f"{place.file}: {shown(key)} in {place.table} does not belong there: {place.secrets}")
            raise BadInput(f"{place.file}: {place.table} has no key {shown(key)}; {nearest(key, known)}")


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{shown(key)[1:-1]}"'
