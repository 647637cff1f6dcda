"""Commands that need no board: `model` and `completion`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..errors import BadInput
from .command import examples, json_option, show_json

_INSTALL = {
    "bash": 'eval "$(dugnad completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(dugnad completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "dugnad completion fish > ~/.config/fish/completions/dugnad.fish",
}


@click.command("model", epilog=examples("dugnad model anthropic:claude-sonnet-5-5"))
@click.argument("name", required=False)
@json_option
def model(name: str | None, as_json: bool) -> None:
    """Show the window and the price of a model. This asks no provider and costs nothing."""
    from ..models.open import default_model
    from ..models.prices import facts_of

    provider, _, model_name = (name or default_model()).partition(":")
    if not model_name:
        raise BadInput(f"{name!r} is not a model; write provider:model.")
    facts = facts_of(provider, model_name)
    price = facts.price
    if as_json:
        shown = {"input": price.input, "output": price.output} if price else None
        show_json({"model": f"{provider}:{model_name}", "window_tokens": facts.window_tokens, "price": shown})
        return
    window = f"{facts.window_tokens:,} tokens" if facts.window_tokens else "not known"
    cost = (
        f"${price.input:g} in, ${price.output:g} out, per million tokens"
        if price
        else "not known; costs are counted in tokens"
    )
    click.echo(f"{provider}:{model_name}\n  window  {window}\n  price   {cost}")


@click.command("completion", epilog=examples("dugnad completion bash"))
@click.argument("shell", required=False, type=click.Choice(sorted(_INSTALL)))
def completion(shell: str | None) -> None:
    """Print the script with which your shell completes commands, options, task numbers and names."""
    from click.shell_completion import get_completion_class

    chosen = shell or Path(os.environ.get("SHELL", "")).name
    made = get_completion_class(chosen)
    if chosen not in _INSTALL or made is None:
        raise BadInput(f"Which shell? Write one of: {', '.join(sorted(_INSTALL))}.")
    root = click.get_current_context().find_root()
    click.echo(made(root.command, {}, "dugnad", "_DUGNAD_COMPLETE").source())
    click.echo(f"# To use it in every new shell:\n#   {_INSTALL[chosen]}")
