"""The command `vgpu-agent`: options enter, one agent runs until SIGTERM or SIGINT.

A wrong setting ends the process before anything is read or written: exit status 2 and one line that says what is
wrong, where, and what to do. So does another agent on the same node. Then this process becomes the supervisor: it
puts the options into the environment and executes a module that has loaded nothing of all this. Nothing else may
be decided here.
"""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vgpu.agent.assembly import USER_AGENT
from vgpu.agent.config import read_settings
from vgpu.agent.only_one import be_the_only_one
from vgpu.agent.options import VARIABLES, AgentOptions
from vgpu.agent.process import LEVELS, WRONG_SETTING_STATUS, set_up_logging
from vgpu.agent.source_choice import make_source
from vgpu.errors import ConfigurationError
from vgpu.kube.client import ApiClient

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with local variables has no place in a log
    help="Publishes the GPU cards of one node as its GpuNodeInventory, and serves them to its kubelet.",
)


async def check(options: AgentOptions) -> None:
    """Raises ConfigurationError for what is wrong already now. Asks and writes nothing."""
    set_up_logging(options.log_level)
    if not options.node:
        raise ConfigurationError("no node name: set NODE_NAME (spec.nodeName by the downward API) or --node")
    read_settings(options.config)
    await make_source(options.source, options.node, options.fixed_file).close()
    client = await ApiClient.connect(kubeconfig=options.kubeconfig, user_agent=USER_AGENT)
    await client.close()


@app.command()
def agent(
    node: Annotated[str, typer.Option(envvar=VARIABLES["node"], help="name of this node")] = "",
    source: Annotated[str, typer.Option(envvar=VARIABLES["source"], help="nvml, fixed or none")] = "nvml",
    fixed_file: Annotated[
        Path | None, typer.Option(envvar=VARIABLES["fixed_file"], help="cards for --source fixed")
    ] = None,
    config: Annotated[Path | None, typer.Option(envvar=VARIABLES["config"], help="node settings file")] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(envvar=VARIABLES["kubeconfig"], help="default: the pod's own account")
    ] = None,
    log_level: Annotated[str, typer.Option(envvar=VARIABLES["log_level"], help=", ".join(LEVELS))] = "info",
) -> None:  # one parameter for each option: typer makes the command line of them
    """Publish this node's cards, keep them published, and serve kubelet.

    Folders and sockets of the node are set by variables alone: VGPU_AGENT_STATE_FOLDER, VGPU_AGENT_PLUGINS_FOLDER,
    VGPU_AGENT_POD_RESOURCES and VGPU_AGENT_CONTROL_GROUPS.
    """
    options = replace(
        AgentOptions.from_environment(),
        node=node,
        source=source,
        fixed_file=fixed_file,
        config=config,
        kubeconfig=kubeconfig,
        log_level=log_level,
    )
    try:
        asyncio.run(check(options))
        be_the_only_one(options.state_folder)
    except ConfigurationError as error:
        typer.echo(f"wrong setting: {error}", err=True)
        raise typer.Exit(WRONG_SETTING_STATUS) from error
    command = [sys.executable, "-m", "vgpu.agent.supervise"]
    os.execve(command[0], command, {**os.environ, **options.to_environment()})


def main() -> None:
    """Entry point of `vgpu-agent`."""
    app()


if __name__ == "__main__":
    main()
