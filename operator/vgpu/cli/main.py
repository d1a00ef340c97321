"""The commands: `kubectl vgpu what-if|explain|plans|queues`.

Enters: arguments. Leaves: tables, or JSON for programs; an error is one line that says what to do, exit status 1,
or 2 where the command itself is wrong. May not live here: how anything is found out.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from vgpu import names
from vgpu.api.preemption import GpuPreemption
from vgpu.cli import questions
from vgpu.cli.asking import Asking
from vgpu.cli.show import patience, show
from vgpu.errors import ConfigurationError, VgpuError
from vgpu.kube.connection import load_connection
from vgpu.report.explain import explain_sections
from vgpu.report.objects import Owed, plan_sections, plan_values, queue_sections
from vgpu.report.what_if import what_if_sections

T = TypeVar("T")
EVERYWHERE = frozenset({"--kubeconfig", "--operator-url", "--operator-namespace"})
USUAL_KUBECONFIG = Path("~/.kube/config")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Who holds GPUs, who waits, who would be evicted and why. Nothing here changes anything.",
)


class Output(StrEnum):
    """How an answer is given."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class _Where:
    kubeconfig: Path | None
    operator_url: str
    operator_namespace: str


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table for people, json for programs")]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="of the pod", show_default=False)]


@app.callback()
def options(
    context: typer.Context,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="default: KUBECONFIG, then ~/.kube/config", show_default=False)
    ] = None,
    operator_url: Annotated[
        str,
        typer.Option(
            envvar="VGPU_OPERATOR_URL",
            help="where the operator's HTTP is; default: found through the API server",
            show_default=False,
        ),
    ] = "",
    operator_namespace: Annotated[str, typer.Option(help="where the operator is installed")] = names.NAMESPACE,
) -> None:
    """Options of all commands."""
    context.obj = _Where(kubeconfig, operator_url, operator_namespace)


@app.command("what-if")
def what_if(
    context: typer.Context,
    pod: Annotated[str, typer.Argument(help="a pod that waits: NAMESPACE/NAME, or NAME with -n")] = "",
    file: Annotated[
        Path | None,
        typer.Option(
            "--filename",
            "-f",
            help="a manifest instead (Pod, Job, Deployment, ...); - = standard input",
            show_default=False,
        ),
    ] = None,
    namespace: NamespaceOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Who would be evicted for a pod, by which right, and who is spared; or why nobody is."""
    if (file is None) == (not pod):
        raise typer.BadParameter("name a pod, or a manifest with -f; not both", param_hint="POD")

    async def ask(asking: Asking) -> dict[str, Any]:
        if file is not None:
            return await questions.what_if_created(asking, file, namespace)
        return await questions.what_if(asking, _full_name(pod, namespace))

    answer = _ask(context, ask, "asking the operator what would happen")
    _give(answer, output, lambda: show(what_if_sections(answer)))


@app.command()
def explain(
    context: typer.Context,
    pod: Annotated[str, typer.Argument(help="NAMESPACE/NAME, or NAME with -n")],
    namespace: NamespaceOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Why a GPU pod waits, node by node and card by card."""
    name = _full_name(pod, namespace)
    answer = _ask(context, lambda asking: questions.explain(asking, name), "asking the operator")
    _give(answer, output, lambda: show(explain_sections(answer)))


@app.command()
def plans(
    context: typer.Context,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="default: all", show_default=False)] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Who waits for whom: the plans that exist, what was lost to them, and what of it is still owed."""

    async def ask(asking: Asking) -> tuple[list[GpuPreemption], Owed]:
        found = await questions.plans(asking, namespace)
        return found, await questions.owed(asking, found)

    found, owed = _ask(context, ask, "asking the API server and the operator")
    _give(plan_values(found, owed), output, lambda: show(plan_sections(found, owed)))


@app.command()
def queues(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """What each queue may use, uses, and waits for."""
    found = _ask(context, questions.queues, "asking the API server")
    values = [queue.model_dump(mode="json", by_alias=True, exclude_none=True) for queue in found]
    _give(values, output, lambda: show(queue_sections(found)))


def _ask(context: typer.Context, ask: Callable[[Asking], Awaitable[T]], what: str) -> T:
    where: _Where = context.obj

    async def run() -> T:
        path = _kubeconfig(where)
        connection = await load_connection(path) if path is not None else None
        async with Asking(connection, where.operator_url, where.operator_namespace) as asking:
            return await ask(asking)

    try:
        with patience(what):
            return asyncio.run(run())
    except VgpuError as error:
        typer.echo(f"vgpu: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, ConfigurationError) else 1) from error


def _kubeconfig(where: _Where) -> Path | None:
    """The one that is named, or the usual one if it is there. Raises ConfigurationError."""
    if where.kubeconfig is not None:
        return where.kubeconfig
    named = os.environ.get("KUBECONFIG", "")
    if os.pathsep in named:
        raise ConfigurationError(f"KUBECONFIG names several files ({named}): choose one by --kubeconfig")
    if named:
        return Path(named)
    usual = USUAL_KUBECONFIG.expanduser()
    if usual.is_file():
        return usual
    if where.operator_url:
        return None
    raise ConfigurationError(f"no kubeconfig: {usual} does not exist; name one by --kubeconfig or KUBECONFIG")


def _full_name(pod: str, namespace: str) -> str:
    stated, slash, name = pod.rpartition("/")
    if slash and namespace and stated != namespace:
        raise typer.BadParameter(f"{pod} is not in namespace {namespace}", param_hint="POD")
    return f"{stated or namespace or questions.DEFAULT_NAMESPACE}/{name}"


def _give(values: Any, output: Output, to_people: Callable[[], None]) -> None:
    if output is Output.JSON:
        typer.echo(json.dumps(values, indent=2))
    else:
        to_people()


def hoisted(arguments: Sequence[str]) -> list[str]:
    """Options of all commands may stand anywhere, as kubectl's do: here they come first."""
    first, rest = [], []
    left = iter(arguments)
    for argument in left:
        name, equals, _ = argument.partition("=")
        if name not in EVERYWHERE:
            rest.append(argument)
        elif equals:
            first.append(argument)
        else:
            first += [argument, *islice(left, 1)]
    return [*first, *rest]


def main() -> None:
    """Entry point of `kubectl-vgpu`."""
    app(args=hoisted(sys.argv[1:]))
