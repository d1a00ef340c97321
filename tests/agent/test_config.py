"""Node settings: which entry is for a node, HAMi's own file, and loud refusals (R36)."""

from pathlib import Path

import pytest
import yaml

from vgpu.agent.config import NodeSettings, SettingsFile, parse_settings, read_settings
from vgpu.agent.xid import Effect
from vgpu.core.facts import CardMode, Identity, Plugin
from vgpu.errors import ConfigurationError

WHOLE = """
defaults: {slots: 8, memoryReserveMiB: 100}
nodes:
  - name: n1
    slots: 2
  - labels: {pool: a100}
    slots: 4
    excludeCards: {uuids: [GPU-9], indexes: [3]}
nodeconfig:
  - {name: n2, devicesplitcount: 5, devicememoryscaling: 1.5, operatingmode: mig, filterdevices: {index: [0]}}
"""

HAMI = """{"nodeconfig": [{
  "name": "n1", "operatingmode": "hami-core", "devicememoryscaling": 1.8, "devicecorescaling": 1,
  "devicesplitcount": 10, "migstrategy": "none", "filterdevices": {"uuid": ["GPU-7"], "index": [0]},
  "preconfigureddevicememory": 16384, "libcudaloglevel": 3, "enablenumatopology": true,
  "enablegetpreferredallocation": false}]}"""


def settings(text: str, node: str = "n1", **labels: str) -> NodeSettings:
    return parse_settings(text, "settings.yaml").for_node(node, labels)


def test_without_a_file_the_defaults_hold() -> None:
    got = read_settings(None).for_node("n1", {})
    assert (got.slots, got.memory_reserve_mib, got.memory_factor, got.plugin) == (10, 0, 1, Plugin.VGPU)
    assert got.effective_identity is Identity.EXACT
    assert got.effective_slot_resource == "volcano.sh/vgpu-number"


def test_an_entry_by_name_goes_over_labels_and_labels_over_defaults() -> None:
    assert settings(WHOLE, "n1", pool="a100").slots == 2
    assert settings(WHOLE, "n1", pool="a100").exclude_cards.uuids == {"GPU-9"}
    assert settings(WHOLE, "n3", pool="a100", zone="z").slots == 4
    assert settings(WHOLE, "n3", pool="v100").slots == 8
    assert settings(WHOLE, "n3").memory_reserve_mib == 100


def test_an_entry_of_hamis_list_is_read_beside_ours() -> None:
    got = settings(WHOLE, "n2")
    assert (got.slots, got.memory_scale_percent, got.mode) == (5, 150, CardMode.MIG)
    assert got.exclude_cards.indexes == {0}
    assert got.memory_reserve_mib == 100


def test_hamis_own_file_is_read_as_it_is() -> None:
    got = settings(HAMI)
    assert (got.slots, got.memory_scale_percent, got.preconfigured_memory_mib) == (10, 180, 16384)
    assert (got.exclude_cards.uuids, got.exclude_cards.indexes) == ({"GPU-7"}, {0})
    assert got.mode is None
    assert settings(HAMI, "another") == NodeSettings()


def test_zero_and_null_mean_unset_in_hamis_file() -> None:
    entry = {"name": "n1", "devicesplitcount": 0, "devicememoryscaling": 0, "filterdevices": None}
    assert settings(yaml.safe_dump({"nodeconfig": [entry]})) == NodeSettings()


@pytest.mark.parametrize(
    ("plugin", "want"),
    [
        ("vgpu", (Identity.EXACT, "volcano.sh/vgpu-number")),
        ("hami", (Identity.DEFERRED, "nvidia.com/gpu")),
        ("volcano", (Identity.DEFERRED, "volcano.sh/vgpu-number")),
    ],
)
def test_identity_and_resource_follow_the_plugin(plugin: str, want: tuple[Identity, str]) -> None:
    got = settings(f"defaults: {{plugin: {plugin}}}")
    assert (got.effective_identity, got.effective_slot_resource) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("defaults: {slots: 100000}", "defaults: slots", id="r36 too many slots"),
        pytest.param("defaults: {slots: 0}", "defaults: slots", id="no slots"),
        pytest.param("defaults: {slots: -1}", "slots: must be at least 1, got '-1'", id="negative slots"),
        pytest.param("defaults: {slots: many}", "slots: must be a whole number, got 'many'", id="not a number"),
        pytest.param("defaults: {cdiFolder: here}", "cdiFolder: must be of the form ^/.+$", id="no full path"),
        pytest.param("nodes: [{name: a}, {name: a, slots: 3}]", "2 entries with name a", id="one name twice"),
        pytest.param("defaults: {memoryReserveMiB: -5}", "memoryReserveMiB", id="negative reserve"),
        pytest.param("defaults: {memoryFactor: 0}", "memoryFactor", id="factor 0"),
        pytest.param("defaults: {slotz: 3}", "slotz: unknown key; known are", id="unknown key"),
        pytest.param("default: {slots: 3}", "default: unknown key", id="unknown section"),
        pytest.param("nodes: [{slots: 3}]", "give either name or labels", id="entry for nobody"),
        pytest.param("nodes: [{name: a, labels: {b: c}}]", "give either name or labels", id="name and labels"),
        pytest.param("nodes: [{name: other, slots: 0}]", "nodes[0] (other): slots", id="entry of another node"),
        pytest.param("nodes: [{name: a, slot: 3}]", "nodes[0] (a): slot: unknown key", id="unknown key of entry"),
        pytest.param("defaults: {slotResource: nvidia.com/gpumem}", "slotResource", id="no slot resource"),
        pytest.param("defaults: {plugin: hami, identity: exact}", "identity exact", id="exact with HAMi's plugin"),
        pytest.param("defaults: {identity: deferred, cardFiles: cdi}", "needs identity exact", id="no CDI"),
        pytest.param("nodeconfig: [{name: a, devicesplitcount: 90000}]", "nodeconfig (a): slots", id="hami slots"),
        pytest.param("nodeconfig: [{name: a, devicesplitcount: -2}]", "devicesplitcount", id="hami negative"),
        pytest.param("nodeconfig: [{name: a, devicecorescaling: 2}]", "a card has 100 cores", id="hami cores"),
        pytest.param("nodeconfig: [{name: a, operatingmode: mps}]", "operatingmode", id="hami mode"),
        pytest.param("nodeconfig: [{name: a, devicesplit: 1}]", "devicesplit: unknown key", id="hami unknown"),
        pytest.param("nodeconfig: [{devicesplitcount: 1}]", "name", id="hami without a name"),
        pytest.param("defaults: {xids: {fatal: [31], shown: [31]}}", "Xid 31 stands in", id="two effects"),
        pytest.param("defaults: {xids: {fatal: [0]}}", "xids.fatal", id="no Xid"),
        pytest.param("defaults: {xids: {harmless: [31]}}", "harmless: unknown key", id="unknown effect"),
        pytest.param("[1, 2]", "expected keys", id="a list"),
        pytest.param("{unclosed", "neither YAML nor JSON", id="not YAML"),
    ],
)
def test_r36_a_silly_setting_is_refused_and_named(text: str, want: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_settings(text, "settings.yaml")
    assert str(caught.value).startswith("settings.yaml: ")
    assert want in str(caught.value)


def test_r40_what_an_xid_does_can_be_set_for_some_nodes() -> None:
    policy = settings("nodes: [{name: n1, xids: {ignored: [79], fatal: [31, 999]}}]").xids.policy
    assert [policy.rule(xid).effect for xid in (79, 31, 999)] == [Effect.IGNORED, Effect.FATAL, Effect.FATAL]
    assert policy.rule(48) == NodeSettings().xids.policy.rule(48)


def test_a_missing_file_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="VGPU_AGENT_CONFIG"):
        read_settings(tmp_path / "absent.yaml")


def test_an_empty_file_means_defaults() -> None:
    assert parse_settings("", "x") == SettingsFile()


@pytest.mark.parametrize(("text", "want"), [(WHOLE, True), (HAMI, False), ("", False)])
def test_labels_are_read_only_where_an_entry_needs_them(text: str, want: bool) -> None:
    assert parse_settings(text, "x").needs_labels is want
