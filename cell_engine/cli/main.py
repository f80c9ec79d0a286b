"""The `autofill` command: its commands by duty, and how errors become messages and exit codes."""

from __future__ import annotations

import errno
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from cell_engine.cli import (
    changes,
    demos,
    dispatches,
    exporting,
    limits,
    loading,
    money,
    people,
    previews,
    providers,
    records,
    reviews,
    services,
    stack_commands,
)
from cell_engine.errors import AutofillError

EXIT_CODES = """\
Exit codes: 0 done · 1 it failed, or cells ended in error · 2 wrong usage, a value that does not fit or a name that does
not exist · 3 the database schema is out of range · 4 the database cannot be reached · 5 loaded, but some lines were
rejected · 6 refused by a limit for now (`autofill limits`) · 130 interrupted
"""


class _Commands(TyperGroup):
    """Errors meant for people end a command with their message on stderr and their exit code, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AutofillError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(error.exit_code) from None
        except Exception as error:
            trouble = _unreachable(error) or _full(error)
            if trouble is None:
                raise
            typer.echo(str(trouble), err=True)
            raise typer.Exit(trouble.exit_code) from None


def _full(error: Exception) -> AutofillError | None:
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return None
    where = "" if error.filename is None else f" {error.filename}"
    return AutofillError(f"Cannot write{where}: {error.strerror}. Make room there, or set AUTOFILL_HOME elsewhere.")


def _unreachable(error: Exception) -> AutofillError | None:
    psycopg = sys.modules.get("psycopg")  # it is slow to import
    if psycopg is None or not isinstance(error, psycopg.OperationalError):
        return None
    from cell_engine.parts import unreachable

    return unreachable(error)


app = typer.Typer(
    cls=_Commands,
    name="autofill",
    help="Collections whose computed cells are filled in by language models and functions.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    # Typer's pretty traceback prints local variables, and those may hold cells and keys.
    pretty_exceptions_enable=False,
)
for module, panel in (
    (stack_commands, "The whole thing on this machine"),
    (demos, "The whole thing on this machine"),
    (people, "Collections"),
    (exporting, "Collections"),
    (loading, "Collections"),
    (previews, "Collections"),
    (changes, "Your changes"),
    (reviews, "Review"),
    (dispatches, "Dispatches and rules"),
    (records, "What happened"),
    (services, "Single processes"),
):
    for command in module.COMMANDS:
        app.command(
            command.__name__.rstrip("_"),
            rich_help_panel=panel,
            context_settings=module.CONTEXT_SETTINGS.get(command.__name__),
        )(command)
app.add_typer(limits.app, rich_help_panel="Limits")
for name, group in (("credit", money.credit), ("budget", money.budget), ("provider", providers.app)):
    app.add_typer(group, name=name, rich_help_panel="Limits")


def main() -> None:
    """The entry point of the `autofill` script."""
    app(prog_name="autofill")
