"""The global options: understood before the command, after it, and between the two.

They are added to a command's own options when it is registered, so that no command repeats them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from streams.console import failures
from streams.console.output import Form, Output
from streams.console.session import Given, Session

PANEL: Final = "Global options"

LogLevel = StrEnum("LogLevel", ["DEBUG", "INFO", "WARNING", "ERROR"])


def _option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=PANEL, show_default=False, **more)


Bootstrap = Annotated[
    str | None,
    _option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Kafka's address, or MINUTEWHEEL_BOOTSTRAP. Default: 127.0.0.1:19092.",
    ),
]
Prefix = Annotated[
    str | None, _option("--prefix", metavar="TEXT", help="What the topics' names begin with.")
]
Properties = Annotated[
    list[str] | None,
    _option("-X", metavar="NAME=VALUE", help="A librdkafka property; may be repeated."),
]
Config = Annotated[Path | None, _option("--config", metavar="FILE", help="Settings in TOML.")]
Output_ = Annotated[
    Form | None, _option("-o", "--output", help="A table for people, or JSON for programs.")
]
Level = Annotated[LogLevel | None, _option("--log-level", help="What the log tells.")]

GLOBALS: Final[dict[str, Any]] = {
    "bootstrap": Bootstrap,
    "prefix": Prefix,
    "properties": Properties,
    "config": Config,
    "output": Output_,
    "log_level": Level,
}


def global_parameters() -> list[Parameter]:
    """The global options as parameters of a function."""
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in GLOBALS.items()
    ]


def add(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Register a command. `function` takes a `Session`, then its own options."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    def command(context: typer.Context, **values: Any) -> None:
        for global_name in GLOBALS:
            del values[global_name]
        given = given_in(context)
        session = Session(given, Output(given.form))
        try:
            function(session, **values)
        except Exception as error:
            if not failures.is_from_kafka(error):
                raise
            raise failures.with_address(error, session.settings()) from error

    dress(command, [*own, *global_parameters()], function.__doc__)
    app.command(name)(command)


def dress(function: Callable[..., Any], parameters: list[Parameter], doc: str | None) -> None:
    """Give a function the signature and the help that the option parser reads from it."""
    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    signature = inspect.Signature([context, *named])
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in [context, *named]}
    function.__doc__ = doc


def given_in(context: typer.Context) -> Given:
    """What was said globally: the word nearest to the command counts, `-X` adds up."""
    levels: list[dict[str, Any]] = []
    level: Any = context
    while level is not None:
        levels.append(level.params)
        level = level.parent

    def nearest(name: str) -> Any:
        return next((at[name] for at in levels if at.get(name) is not None), None)

    properties = [each for at in reversed(levels) for each in at.get("properties") or ()]
    return Given(
        bootstrap=nearest("bootstrap"),
        prefix=nearest("prefix"),
        properties=tuple(properties),
        config=nearest("config"),
        form=nearest("output") or Form.TABLE,
        log_level=nearest("log_level") or LogLevel.INFO,
    )
