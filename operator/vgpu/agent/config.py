"""Node settings: one file for all nodes (a mounted ConfigMap), and what it says for one node.

Text enters, NodeSettings leaves, or ConfigurationError naming file, place, key and what is allowed. Two forms
are read, together or alone:

    defaults: {slots: 10, memoryReserveMiB: 512}
    nodes:                                # in this order; entries by name go over entries by label
      - labels: {pool: a100}
        slots: 4
        excludeCards: {uuids: [GPU-...], indexes: [0]}
      - name: node-7
        plugin: hami
    nodeconfig:                           # HAMi's and Volcano's own config.json, as it is
      - {name: node-8, devicesplitcount: 5, devicememoryscaling: 1.5, filterdevices: {uuid: [], index: []}}

What goes over what: defaults, nodeconfig, nodes by label, nodes by name.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from vgpu import names
from vgpu.agent.file_faults import NO_YAML, in_words
from vgpu.agent.hami_config import HamiNode
from vgpu.agent.xid import Effect, XidPolicy
from vgpu.core.facts import CardMode, Identity, Plugin
from vgpu.errors import ConfigurationError

ModelT = TypeVar("ModelT", bound=BaseModel)
MAX_SLOTS = 1000
"""Per card. kubelet's API drops device lists above 4 MiB, some 60,000 entries, without a word."""


class FileModel(BaseModel):
    """A part of the file: camelCase keys; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=False,
        alias_generator=lambda name: to_camel(name).replace("Mib", "MiB"),
        validate_by_name=True,
    )


class ExcludedCards(FileModel):
    """Cards that the agent leaves alone: they are not in the inventory."""

    uuids: frozenset[str] = frozenset()
    indexes: frozenset[int] = frozenset()


class CardFiles(StrEnum):
    """Who brings a card's device files into a container.

    runtime: NVIDIA's container runtime, told by NVIDIA_VISIBLE_DEVICES; it brings the driver's libraries too,
    which differ from driver to driver. cdi: our CDI file names /dev/nvidia*, and the driver's libraries must be in
    the image or mounted by the pod; for nodes without NVIDIA's runtime.
    """

    RUNTIME = "runtime"
    CDI = "cdi"


class XidSettings(FileModel):
    """What the Xids with these numbers do to their card, in place of what the agent's own table says."""

    ignored: frozenset[PositiveInt] = frozenset()
    shown: frozenset[PositiveInt] = frozenset()
    fatal: frozenset[PositiveInt] = frozenset()

    @model_validator(mode="after")
    def _has_each_number_once(self) -> Self:
        listed = sorted([*self.ignored, *self.shown, *self.fatal])
        twice = sorted({xid for xid in listed if listed.count(xid) > 1})
        if twice:
            raise ValueError(f"Xid {twice[0]} stands in more than one list")
        return self

    @property
    def policy(self) -> XidPolicy:
        """The agent's table with these changes."""
        lists = ((Effect.IGNORED, self.ignored), (Effect.SHOWN, self.shown), (Effect.FATAL, self.fatal))
        return XidPolicy({xid: effect for effect, xids in lists for xid in xids})


class NodeSettings(FileModel):
    """Everything that a person may set for a node."""

    slots: int = Field(10, ge=1, le=MAX_SLOTS, description="holders per card at most")
    memory_reserve_mib: int = Field(0, ge=0, description="MiB of each card that no pod may use")
    memory_factor: int = Field(1, ge=1, le=1024 * 1024, description="memory is given in units of so many MiB")
    memory_scale_percent: int = Field(100, ge=1, le=1000, description="above 100 the memory is over-committed")
    preconfigured_memory_mib: int = Field(0, ge=0, description="for cards whose driver names no size; 0 = none")
    exclude_cards: ExcludedCards = Field(
        ExcludedCards(), description="cards left out of the inventory: {uuids: [...], indexes: [...]}"
    )
    xids: XidSettings = Field(
        XidSettings(), description="other effects of Xids than usual: {ignored: [...], shown: [...], fatal: [...]}"
    )
    mode: CardMode | None = Field(None, description="mig: all cards are cut by others and take nothing")
    plugin: Plugin = Field(
        Plugin.VGPU,
        description="whose device plugin serves kubelet; vgpu: the agent itself. Change it only on a node "
        "without GPU pods: containers of those that run cannot start again",
    )
    slot_resource: str = Field(
        "",
        description="what the plugin advertises, where it is not the usual. Change it only on a node without "
        "GPU pods: containers of those that run cannot start again",
        json_schema_extra={"enum": [names.VOLCANO_NUMBER, names.HAMI_NUMBER]},
    )
    identity: Identity | None = Field(None, description="leave it out: exact with plugin vgpu, otherwise deferred")
    isolation_library: str = Field(
        "/usr/local/vgpu/libvgpu.so",
        pattern=r"^(/.+)?$",
        description="HAMi-core on the node, mounted into containers that share a card; where the file is missing "
        "the node takes nothing new. A folder other than /usr/local/vgpu must be mounted into the agent too, at "
        "the same path: volume isolation of its DaemonSet. Empty: limits are told to containers and not held",
    )
    card_files: CardFiles = Field(
        CardFiles.RUNTIME,
        description="who brings /dev/nvidia* into containers. runtime: NVIDIA's container runtime, with the "
        "driver's libraries; cdi: our CDI file, and the libraries must be in the image",
    )
    cdi_folder: str = Field(
        "/var/run/cdi",
        pattern=r"^/.+$",
        description="a folder in which the container runtime looks for CDI files; another must be mounted into "
        "the agent too, at the same path: volume cdi of its DaemonSet",
    )

    @model_validator(mode="after")
    def _exact_needs_our_plugin(self) -> Self:
        if self.plugin is not Plugin.VGPU and self.identity is Identity.EXACT:
            raise ValueError(f"identity exact needs plugin vgpu; with plugin {self.plugin} leave it out")
        if self.plugin is Plugin.VGPU and self.identity is Identity.DEFERRED and self.card_files is CardFiles.CDI:
            raise ValueError("cardFiles cdi needs identity exact: deferred is for runtimes without CDI")
        return self

    @field_validator("slot_resource")
    @classmethod
    def _is_a_slot_resource(cls, value: str) -> str:
        if value not in ("", names.VOLCANO_NUMBER, names.HAMI_NUMBER):
            raise ValueError(f"must be {names.VOLCANO_NUMBER} or {names.HAMI_NUMBER}")
        return value

    @property
    def effective_identity(self) -> Identity:
        """As set; otherwise exact with our plugin, deferred with another's."""
        return self.identity or (Identity.EXACT if self.plugin is Plugin.VGPU else Identity.DEFERRED)

    @property
    def effective_slot_resource(self) -> str:
        """As set; otherwise the name that the plugin in charge advertises."""
        default = names.HAMI_NUMBER if self.plugin is Plugin.HAMI else names.VOLCANO_NUMBER
        return self.slot_resource or default


class NodeEntry(FileModel):
    """One entry of `nodes`: whom it is for, and the settings beside it."""

    model_config = ConfigDict(extra="allow")

    name: str = ""
    labels: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_one_target(self) -> Self:
        if bool(self.name) == bool(self.labels):
            raise ValueError("give either name or labels")
        return self

    def matches(self, node: str, labels: Mapping[str, str]) -> bool:
        """Is this entry for the node?"""
        return self.name == node if self.name else self.labels.items() <= labels.items()


class SettingsFile(FileModel):
    """The whole file."""

    defaults: dict[str, Any] = Field(default_factory=dict)
    nodes: tuple[NodeEntry, ...] = ()
    nodeconfig: tuple[HamiNode, ...] = ()

    @model_validator(mode="after")
    def _has_each_name_once(self) -> Self:
        listed = [entry.name for entry in self.nodes if entry.name]
        twice = sorted({name for name in listed if listed.count(name) > 1})
        if twice:
            raise ValueError(f"nodes has {listed.count(twice[0])} entries with name {twice[0]}: make them one")
        return self

    @property
    def needs_labels(self) -> bool:
        """Does any entry choose by label? Only then does the agent have to read its Node."""
        return any(entry.labels for entry in self.nodes)

    def for_node(self, node: str, labels: Mapping[str, str]) -> NodeSettings:
        """The settings of one node. Every entry was checked when the file was read."""
        merged = dict(self.defaults)
        for legacy in self.nodeconfig:
            if legacy.name == node:
                merged |= legacy.settings()
        matching = [entry for entry in self.nodes if entry.matches(node, labels)]
        for entry in sorted(matching, key=lambda entry: bool(entry.name)):
            merged |= entry.model_extra or {}
        return _validated(NodeSettings, merged, f"settings of node {node}")


def parse_settings(text: str, where: str) -> SettingsFile:
    """Read and check the whole file, entries for other nodes included. Raises ConfigurationError."""
    try:
        raw = yaml.safe_load(text)
    except NO_YAML as error:
        raise ConfigurationError(f"{where}: neither YAML nor JSON: {error}") from error
    if raw is None:
        return SettingsFile()
    if not isinstance(raw, dict):
        raise ConfigurationError(f"{where}: expected keys defaults, nodes, nodeconfig; got {type(raw).__name__}")
    parsed = _validated(SettingsFile, raw, where)
    _validated(NodeSettings, parsed.defaults, f"{where}: defaults")
    for position, entry in enumerate(parsed.nodes):
        merged = parsed.defaults | (entry.model_extra or {})
        _validated(NodeSettings, merged, f"{where}: nodes[{position}] ({entry.name or entry.labels})")
    for legacy in parsed.nodeconfig:
        merged = parsed.defaults | legacy.settings()
        _validated(NodeSettings, merged, f"{where}: nodeconfig ({legacy.name})")
    return parsed


def read_settings(path: Path | None) -> SettingsFile:
    """The file's settings; the defaults where no file is named. Raises ConfigurationError."""
    if path is None:
        return SettingsFile()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path}: cannot be read ({error}); mount the ConfigMap there or change VGPU_AGENT_CONFIG"
        ) from error
    return parse_settings(text, str(path))


def _validated(model: type[ModelT], raw: Mapping[str, Any], where: str) -> ModelT:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(f"{where}: {in_words(error, model)}") from error
