"""The command line: a thin face. Nothing heavy is imported before a command runs, so that help is instant."""

from __future__ import annotations

import click

from .. import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dugnad")
def main() -> None:
    """A team of LLM agents that finds its own work."""


@main.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def model(name: str | None, as_json: bool) -> None:
    """What is known of a model: its window and its price. Asks nobody, costs nothing.

    Example: dugnad model anthropic:claude-sonnet-5-5
    """
    import json

    from ..errors import DugnadError
    from ..models.opening import default_model
    from ..models.prices import facts_of

    try:
        provider, _, model_name = (name or default_model()).partition(":")
    except DugnadError as error:
        raise click.UsageError(str(error)) from None
    if not model_name:
        raise click.UsageError(f"{name!r} names no model; write provider:model.")
    facts = facts_of(provider, model_name)
    price = facts.price
    if as_json:
        shown = {"input": price.input, "output": price.output} if price else None
        click.echo(
            json.dumps({"model": f"{provider}:{model_name}", "window_tokens": facts.window_tokens, "price": shown})
        )
        return
    window = f"{facts.window_tokens:,} tokens" if facts.window_tokens else "not known"
    cost = (
        f"${price.input:g} in, ${price.output:g} out, per million tokens" if price else "not known: counted in tokens"
    )
    click.echo(f"{provider}:{model_name}\n  window  {window}\n  price   {cost}")
