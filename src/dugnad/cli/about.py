"""The commands about the setup: `doctor`, `model` and `completion`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import click

from ..errors import BadInput
from ..text import counted
from .command import answer, board_given, board_option, examples, json_option, show, working_folder

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
    shown = {"input": price.input, "output": price.output} if price else None
    window = f"{facts.window_tokens:,} tokens" if facts.window_tokens else "not known"
    cost = "not known; costs are counted in tokens"
    if price:
        cost = f"${price.input:g} in, ${price.output:g} out, per million tokens"
    answer(
        as_json,
        {"model": f"{provider}:{model_name}", "window_tokens": facts.window_tokens, "price": shown},
        f"{provider}:{model_name}\n  window  {window}\n  price   {cost}",
    )


@click.command("doctor", epilog=examples("dugnad doctor\ndugnad doctor --online"))
@board_option
@json_option
@click.option("--online", is_flag=True, help="Also ask the model one small question.")
@click.option("--check", "runs_check", is_flag=True, help="Also run the project's check.")
def doctor(as_json: bool, online: bool, runs_check: bool) -> int:
    """Check the setup and say how to fix it. The exit code is 1 if anything is wrong."""
    import asyncio

    from .checks import Scene
    from .doctor import examine, findings_table

    scene = Scene(
        start=working_folder(), environment=os.environ, board_given=board_given(), online=online, runs_check=runs_check
    )
    findings = asyncio.run(examine(scene))
    wrong, warnings = (sum(each.level == level for each in findings) for level in ("wrong", "warning"))
    shape = {"findings": [asdict(each) for each in findings], "wrong": wrong, "warnings": warnings}
    answer(as_json, shape, lambda: findings_table(findings))
    if not as_json:
        show(f"{wrong or 'Nothing'} wrong, {counted(warnings, 'warning') if warnings else 'no warnings'}.")
    return 1 if wrong else 0


@click.command("completion", epilog=examples("dugnad completion bash"))
@click.argument("shell", required=False, type=click.Choice(sorted(_INSTALL)))
def completion(shell: str | None) -> None:
    """Print the script that lets your shell complete commands, options, task numbers and names."""
    from click.shell_completion import get_completion_class

    chosen = shell or Path(os.environ.get("SHELL", "")).name
    made = get_completion_class(chosen)
    if chosen not in _INSTALL or made is None:
        raise BadInput(f"Which shell? Write one of: {', '.join(sorted(_INSTALL))}.")
    root = click.get_current_context().find_root()
    click.echo(made(root.command, {}, "dugnad", "_DUGNAD_COMPLETE").source())
    click.echo(f"# To use it in every new shell:\n#   {_INSTALL[chosen]}")
