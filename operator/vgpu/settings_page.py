"""Turns the settings' models into docs/settings.md: `python -m vgpu.settings_page docs/settings.md`.

Models enter, Markdown leaves. What a setting means stands in its model; no setting is named here.
"""

import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vgpu.agent.config import NodeSettings
from vgpu.settings import ENV_PREFIX, RULES, OperatorSettings

HEAD = """# Settings

Made from the models by `make docs`. A change belongs there.

## The operator

Variables of the container in `manifests/base/operator/deployment.yaml`. A wrong or misspelt one ends the process
at once and is named. Times are in seconds.

"""
TOGETHER = "\nWhat they must be to each other:\n\n"
AGENT = """
## An agent, for its node

Keys of `defaults` and of the entries of `nodes` in `manifests/base/agent/config.yaml`.

"""
SIGNS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def page() -> str:
    """The whole page."""
    operator = {ENV_PREFIX + name.upper(): field for name, field in OperatorSettings.model_fields.items()}
    agent = {field.alias or name: field for name, field in NodeSettings.model_fields.items()}
    rules = "".join(f"- {text}\n" for _, text in RULES)
    return HEAD + "".join(table(operator)) + TOGETHER + rules + AGENT + "".join(table(agent))


def table(fields: dict[str, FieldInfo]) -> Iterator[str]:
    """One line for each setting."""
    yield "| Setting | Default | Allowed | Meaning |\n|---|---|---|---|\n"
    for name, field in fields.items():
        yield f"| `{name}` | {_default(field.default)} | {_allowed(field)} | {field.description or ''} |\n"


def _default(value: Any) -> str:
    if value is None or value == "" or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _allowed(field: FieldInfo) -> str:
    choices = [choice for part in (field.annotation, *get_args(field.annotation)) for choice in _choices(part)]
    if isinstance(field.json_schema_extra, dict) and isinstance(
        listed := field.json_schema_extra.get("enum"), list
    ):
        choices += [str(choice) for choice in listed]
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.annotation is bool:
        return "`true`, `false`"
    limits = [(limit, key) for limit in field.metadata for key in SIGNS if hasattr(limit, key)]
    return ", ".join(f"{SIGNS[key]} {getattr(limit, key)}" for limit, key in limits)


def _choices(annotation: Any) -> Sequence[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(choice.value) for choice in annotation]
    return []


def main(arguments: Sequence[str]) -> int:
    """Write the page into the one file named by `arguments`."""
    if len(arguments) != 1:
        print("usage: python -m vgpu.settings_page FILE", file=sys.stderr)
        return 2
    Path(arguments[0]).write_text(page())
    print(f"wrote {arguments[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
