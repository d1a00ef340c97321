"""The operator's command line: `vgpu-operator run`.

Enters: options and VGPU_... variables. Leaves: a running operator, or exit status 2 with one line that says what
is wrong, where, and what to do. May not live here: anything else.
"""

import asyncio
import logging
import resource
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from vgpu.controller.app import run_operator
from vgpu.errors import ConfigurationError
from vgpu.settings import settings_from_environment

CONFIGURATION_EXIT = 2
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"

cli = typer.Typer(add_completion=False)


@cli.callback()
def operator() -> None:
    """Shares GPU cards between pods: the operator."""


@cli.command()
def run(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="kubeconfig to use; without it the pod's own account", show_default=False)
    ] = None,
    log_level: Annotated[str, typer.Option(envvar="VGPU_LOG_LEVEL", help=", ".join(LEVELS))] = "INFO",
) -> None:
    """Run until SIGTERM. Settings are read from VGPU_... variables."""
    try:
        if log_level.upper() not in LEVELS:
            raise ConfigurationError(f"--log-level or VGPU_LOG_LEVEL {log_level!r} is none of {', '.join(LEVELS)}")
        logging.basicConfig(level=log_level.upper(), format=LOG_FORMAT, stream=sys.stderr)
        settings = settings_from_environment()
        raise_open_files()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_operator(settings, kubeconfig))
    except ConfigurationError as error:
        typer.echo(f"vgpu-operator: {error}", err=True)
        raise typer.Exit(CONFIGURATION_EXIT) from error


def raise_open_files() -> None:
    """Let this process open as many files and connections as it may: the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Entry point of the installed command, which runs the operator when no command is given."""
    cli(args=sys.argv[1:] or [run.__name__])


if __name__ == "__main__":
    main()
