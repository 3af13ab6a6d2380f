"""The program `minutewheel`. What needs time to load is loaded by the commands that need it."""

from __future__ import annotations

import sys
from inspect import Parameter
from typing import Annotated, Any

import typer

from streams.console import cluster, due, failures, processes, reminders
from streams.console.options import dress, global_parameters


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"minutewheel {version('minutewheel')}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
]


def _root(context: typer.Context, **_: Any) -> None:
    """Global options only; they are read where the command runs."""


def build() -> typer.Typer:
    """The whole program."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
    )
    version = Parameter("version", Parameter.KEYWORD_ONLY, default=False, annotation=Version)
    dress(
        _root,
        [version, *global_parameters()],
        "Durable reminders for Kafka: never early, exactly once, for weeks and through crashes.\n\n"
        "Begin with: minutewheel up",
    )
    app.callback()(_root)
    processes.register(app)
    reminders.register(app)
    due.register(app)
    cluster.register(app)
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run the program with these arguments; returns its exit code.

    0 done, 1 failed, 2 usage, 3 not found, 4 conflict or too late, 5 no broker.
    """
    try:
        code = build()(
            sys.argv[1:] if arguments is None else arguments,
            prog_name="minutewheel",
            standalone_mode=False,
        )
    except KeyboardInterrupt:
        return failures.INTERRUPTED
    except Exception as error:
        return failures.report(error)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
