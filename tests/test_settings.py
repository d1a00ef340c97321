"""Settings come from the environment, and a wrong one says so before anything starts."""

import pytest

from vgpu.errors import ConfigurationError
from vgpu.settings import settings_from_environment


def test_a_setting_is_read_and_others_keep_their_defaults() -> None:
    settings = settings_from_environment({"VGPU_FILTER_BEST_NODES": "7", "PATH": "/bin"})
    assert (settings.filter_best_nodes, settings.unadmitted_limit) == (7, 16)


@pytest.mark.parametrize(
    ("variable", "value", "want"),
    [
        ("VGPU_FILTER_BEST_NODES", "1", "VGPU_FILTER_BEST_NODES: must be at least 2, got '1'"),
        ("VGPU_EXTENDER_PORT", "tcp://10.0.0.1:9443", "VGPU_EXTENDER_PORT: must be a whole number"),
        ("VGPU_NODE_POLICY", "tight", "VGPU_NODE_POLICY: must be 'binpack', 'spread' or 'topology'"),
        ("VGPU_LEASE_SECOND", "9", "VGPU_LEASE_SECOND is no setting: did you mean VGPU_LEASE_SECONDS?"),
        ("VGPU_HTTP_PORT", "99999", "VGPU_HTTP_PORT: must be at most 65535"),
        ("VGPU_EXTENDER_PORT", "0", "VGPU_EXTENDER_PORT: must be at least 1"),
        (
            "VGPU_RENEW_DEADLINE_SECONDS",
            "15",
            "VGPU_RENEW_DEADLINE_SECONDS must be below VGPU_LEASE_SECONDS",
        ),
        ("VGPU_WRITE_SECONDS", "4", "VGPU_WRITE_SECONDS must be below VGPU_WRITE_MARGIN_SECONDS"),
        (
            "VGPU_LEASE_REQUEST_SECONDS",
            "6",
            "VGPU_WRITE_MARGIN_SECONDS and VGPU_LEASE_REQUEST_SECONDS together must be below",
        ),
        ("VGPU_RETRY_SECONDS", "10", "VGPU_RETRY_SECONDS must be below VGPU_RENEW_DEADLINE_SECONDS"),
        ("VGPU_HTTP_PORT", "9443", "VGPU_HTTP_PORT and VGPU_EXTENDER_PORT must differ"),
        ("VGPU_BIND_DEADLINE_SECONDS", "inf", "VGPU_BIND_DEADLINE_SECONDS: must be a finite number"),
        ("VGPU_NAMESPACE", "", "VGPU_NAMESPACE: must have at least 1 character"),
    ],
    ids=[
        "too small",
        "a service link",
        "no such word",
        "misspelt",
        "a port beyond",
        "port 0",
        "deadline",
        "write",
        "margin",
        "retry",
        "one port",
        "infinite",
        "empty",
    ],
)
def test_a_wrong_setting_is_named(variable: str, value: str, want: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings_from_environment({variable: value})
    assert want in str(raised.value)


def test_variables_of_others_are_left_alone() -> None:
    settings_from_environment({"VGPU_AGENT_CONFIG": "/etc/x", "VGPU_USE_EXISTING_CLUSTER": "1"})
