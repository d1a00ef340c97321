"""The file that says which nodes a simulated fleet has. Text enters, a FleetDocument leaves; no Kubernetes here.

cards: {count: 8, model: NVIDIA A100-SXM4-80GB, memoryMiB: 81920}      # for nodes that name none
settings: {slots: 10}                                                    # likewise; keys of node settings
nodes:
  - {prefix: node-, first: 0, count: 200}      # node-0000 ... node-0199
  - name: node-0200
    tokenFile: /path/of/this/agents/token
    settings: {slots: 4, plugin: hami}
    document: {bootId: b, cards: [...], lost: [...], readError: ""}   # the whole form of a cards file
"""

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from vgpu.agent.config import NodeSettings
from vgpu.agent.file_faults import NO_YAML, in_words
from vgpu.agent.fixed import CardsDocument, CardTemplate, FileModel
from vgpu.errors import ConfigurationError


class NodesEntry(FileModel):
    """One node by name, or `count` nodes by prefix."""

    name: str = ""
    prefix: str = ""
    first: int = Field(0, ge=0)
    count: int = Field(0, ge=0, le=10_000)
    width: int = Field(4, ge=1, le=10)
    token_file: Path | None = None
    cards: CardTemplate | None = None
    document: CardsDocument | None = None
    settings: NodeSettings | None = None

    @model_validator(mode="after")
    def _names_its_nodes(self) -> Self:
        if bool(self.name) == bool(self.prefix):
            raise ValueError("give either name, or prefix and count")
        if self.prefix and self.token_file:
            raise ValueError("a token belongs to one node: use name")
        return self

    def node_names(self) -> list[str]:
        """The nodes of this entry."""
        last = self.first + self.count
        return [self.name] if self.name else [f"{self.prefix}{n:0{self.width}}" for n in range(self.first, last)]


class FleetNode(FileModel):
    """One simulated node."""

    name: str
    document: CardsDocument
    settings: NodeSettings
    token_file: Path | None = None


class FleetDocument(FileModel):
    """The whole file."""

    cards: CardTemplate = CardTemplate(count=8)
    settings: NodeSettings = NodeSettings()
    nodes: tuple[NodesEntry, ...] = ()

    def expand(self) -> dict[str, FleetNode]:
        """Every node by name; a later entry goes over an earlier one."""
        found = {}
        for entry in self.nodes:
            document = entry.document or CardsDocument(cards=entry.cards or self.cards)
            for name in entry.node_names():
                found[name] = FleetNode(
                    name=name,
                    document=document,
                    settings=entry.settings or self.settings,
                    token_file=entry.token_file,
                )
        return found


def read_nodes(path: Path) -> dict[str, FleetNode]:
    """Read the file. Raises ConfigurationError naming the file and the wrong key."""
    try:
        raw: Any = yaml.safe_load(path.read_text())
        return FleetDocument.model_validate(raw or {}).expand()
    except ValidationError as error:  # a ValueError too
        raise ConfigurationError(f"{path}: {in_words(error, FleetDocument)}") from error
    except (OSError, *NO_YAML) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
