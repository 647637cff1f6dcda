"""How many tokens fit into the context of each model, looked up when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..config.user import UserSettings

_SCRIPTED = 200_000


class ModelWindows(Mapping[str, int]):
    """By the name of a model; the empty name is the team's own. A model whose window is not known is not in it."""

    def __init__(self, own: str | None, user: UserSettings) -> None:
        self._own, self._user = own, user
        self._found: dict[str, int | None] = {}

    def __getitem__(self, model: str) -> int:
        if model not in self._found:
            self._found[model] = self._window(model or self._own or "")
        if (window := self._found[model]) is None:
            raise KeyError(model)
        return window

    def _window(self, model: str) -> int | None:
        from ..models.prices import facts_of  # Imported here: the prices are large.

        provider, _, name = model.partition(":")
        if provider == "scripted":
            return _SCRIPTED
        if not name or provider == "command":
            return None
        return facts_of(provider, name, window_tokens=self._user.endpoint(model).window_tokens).window_tokens

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
