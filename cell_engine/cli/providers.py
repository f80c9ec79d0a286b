"""`autofill provider`: what the endpoints of language models take, as set and as found out."""

from __future__ import annotations

from typing import Annotated

import typer

from cell_engine.cli.common import AsJson, open_database
from cell_engine.errors import BadValueError, NotFoundError

NO_LIMIT = "none"

app = typer.Typer(
    help="Limits of endpoints (base URL and model): calls in flight, requests and tokens a minute; what is leased now.",
    no_args_is_help=True,
)
_Limit = Annotated[str | None, typer.Option(metavar="NUMBER|none")]


def list_(as_json: AsJson = False) -> None:
    """Every endpoint that was called or has limits: the limits, what is granted of them, what goes on."""
    from rich.table import Table

    from cell_engine.cli import render
    from cell_engine.store.providers import list_providers

    with open_database() as connection:
        found = list_providers(connection)
    if as_json:
        render.print_json([one._asdict() for one in found])
        return
    table = Table(
        "endpoint", "model", "state", "in flight", "waiting", "calls", "requests/min", "tokens/min", "workers"
    )
    for one in found:
        state = f"cooling {one.cooling:.0f} s" if one.state == "cooling" else one.state
        table.add_row(
            one.base_url,
            one.model,
            state,
            f"{one.in_flight:,}",
            f"{one.waiting:,}",
            _shown(one.concurrency, one.ceiling),
            _shown(one.requests_minute, one.found_requests),
            _shown(one.tokens_minute, one.found_tokens),
            f"{one.workers}",
        )
    render.console().print(table)


def set_(
    base_url: Annotated[str, typer.Argument(metavar="BASE_URL", help="As `autofill provider list` shows it.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="As the columns name it.")],
    concurrency: _Limit = None,
    requests: _Limit = None,
    tokens: _Limit = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget what it has shown (a cool-down, too): one call tries it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set limits: calls in flight, requests and tokens a minute. Workers go by them within a second or two.

    What is not named stays. Without a limit the calls in flight adapt: a 429 lowers them for all workers.
    """
    from cell_engine.cli import render
    from cell_engine.kinds.llm_client import shown_address
    from cell_engine.shares import ProviderKey
    from cell_engine.store.providers import list_providers, set_limits

    named = {"concurrency": concurrency, "requests_minute": requests, "tokens_minute": tokens}
    limits = {name: _number(name, text) for name, text in named.items() if text is not None}
    if not limits and not reset:
        raise BadValueError("nothing to set: give --concurrency, --requests, --tokens (a number, or none) or --reset")
    key = ProviderKey(shown_address(base_url), model)
    with open_database() as connection:
        if not limits and not list_providers(connection, *key):
            raise NotFoundError(f"no endpoint {key.base_url} with model {model!r}: see `autofill provider list`")
        set_limits(connection, key, limits, reset=reset)
        (found,) = list_providers(connection, *key)
    if as_json:
        render.print_json(found._asdict())
        return
    typer.echo(
        f"{found.base_url} {found.model}: calls in flight {_shown(found.concurrency, None)}, "
        f"requests a minute {_shown(found.requests_minute, None)}, tokens a minute {_shown(found.tokens_minute, None)}"
    )


def _number(name: str, text: str) -> int | None:
    if text == NO_LIMIT:
        return None
    try:
        return int(text)
    except ValueError:
        raise BadValueError(f"{name}: {text!r} is no number; `none` is no limit") from None


def _shown(limit: int | None, found: int | None) -> str:
    """A limit as set, and as found out where that is lower."""
    shown = NO_LIMIT if limit is None else f"{limit:,}"
    return shown if found is None or (limit is not None and limit <= found) else f"{shown} (found {found:,})"


app.command("list")(list_)
app.command("set")(set_)
