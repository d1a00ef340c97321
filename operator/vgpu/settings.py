"""Settings of the operator, each with its unit and default. Read once at start from VGPU_... variables."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vgpu import names
from vgpu.errors import ConfigurationError
from vgpu.wrong_value import must_be

ENV_PREFIX = "VGPU_"


class OperatorSettings(BaseModel):
    """Everything that a person may set on the operator. VGPU_<FIELD NAME IN CAPITALS> sets a field."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    namespace: str = Field(names.NAMESPACE, min_length=1, description="where the operator runs")
    scheduler_name: str = Field(
        names.SCHEDULER_NAME, min_length=1, description="pods with this schedulerName are placed by us"
    )
    node_policy: Literal["binpack", "spread", "topology"] = Field(
        "binpack", description="which nodes are preferred where a pod says nothing"
    )
    card_policy: Literal["binpack", "spread", "topology"] = Field(
        "binpack", description="which cards of a node are preferred where a pod says nothing"
    )
    filter_best_nodes: int = Field(32, ge=2, description="nodes that filter returns at most")
    unadmitted_limit: int = Field(16, ge=1, description="bound pods not yet admitted, per node")
    admission_refused_limit: int = Field(3, ge=1, description="UnexpectedAdmissionError in a row, per node")
    evict_unassigned: bool = Field(False, description="evict pods bound without cards where none fit")
    evict_unassigned_seconds: float = Field(300, gt=0, description="at most one such eviction per owner in")
    ungate_gangs: bool = Field(
        False, description="take the gate vgpu.dev/gang off pods; needs the component gangs of manifests/"
    )
    recreate_bare_pods: bool = Field(
        False,
        description="create evicted pods without a controller again; needs the component bare-pods of manifests/",
    )
    volcano_memory_factor: int = Field(1, ge=1, description="MiB per unit of volcano.sh/vgpu-memory")
    volcano_matches_count: bool = Field(
        False,
        description="Volcano's device plugin is 1.12 or later everywhere: one unconfirmed pod per card count",
    )
    hami_memory_factor: int = Field(1, ge=1, description="MiB per unit of nvidia.com/gpumem")

    lease_seconds: float = Field(15, gt=0, description="a leader that does not renew so long may be replaced")
    renew_deadline_seconds: float = Field(10, gt=0, description="a leader that cannot renew so long steps down")
    retry_seconds: float = Field(2, gt=0, description="between two tries to get or renew the Lease")
    lease_request_seconds: float = Field(2, gt=0, description="time limit of a request for the Lease")
    write_seconds: float = Field(3, gt=0, description="?timeout= of every write")
    write_margin_seconds: float = Field(4, gt=0, description="no write starts this close to the deadline")

    extender_host: str = Field("0.0.0.0", description="address on which kube-scheduler is answered")
    extender_port: int = Field(names.EXTENDER_PORT, ge=1, le=65535, description="its port, mutual TLS")
    advertise_address: str = Field("", description="host:port of this replica's extender; default POD_IP:port")
    http_host: str = Field("0.0.0.0", description="address of the plain HTTP server")
    http_port: int = Field(
        names.HTTP_PORT, ge=1, le=65535, description="/healthz /readyz /metrics /explain /what-if"
    )
    filter_deadline_seconds: float = Field(1, gt=0, description="filter answers within")
    bind_deadline_seconds: float = Field(9, gt=0, description="bind answers within")

    status_interval_seconds: float = Field(5, ge=0, description="least time between two writes of one status")
    status_settle_seconds: float = Field(
        0.5, ge=0, description="a node must rest so long before its status is written, or the interval passes"
    )
    status_writes_per_second: float = Field(20, gt=0, description="of all objects together, at most")
    events_per_second: float = Field(20, gt=0, description="events written at most")
    event_repeat_seconds: float = Field(600, ge=0, description="same code for the same pod at most once in")
    event_settle_seconds: float = Field(2, ge=0, description="a reason must hold this long before it is told")
    nomination_seconds: float = Field(10, gt=0, description="a nomination holds its cards so long")
    nomination_settle_seconds: float = Field(
        0.2, ge=0, description="a pod is left unasked so long before it is sent"
    )
    nominations_per_answer: int = Field(3, ge=1, description="nominations after one answer, at most")
    nominations_per_second: float = Field(20, gt=0, description="nominations written at most")
    nominations_owed_per_second: float = Field(
        200, gt=0, description="the same for pods to which something is owed after an eviction"
    )
    coalesce_seconds: float = Field(
        0.03, ge=0, description="after a recount the next comes no sooner; changes meanwhile together"
    )
    watch_silence_seconds: float = Field(70, gt=0, description="a watch that says nothing so long is begun anew")
    list_page_size: int = Field(500, ge=1, description="objects in one page of a list")


Rule = tuple[Callable[[OperatorSettings], bool], str]
RULES: tuple[Rule, ...] = (
    (
        lambda s: s.renew_deadline_seconds < s.lease_seconds,
        "VGPU_RENEW_DEADLINE_SECONDS must be below VGPU_LEASE_SECONDS",
    ),
    (
        lambda s: s.write_seconds < s.write_margin_seconds,
        "VGPU_WRITE_SECONDS must be below VGPU_WRITE_MARGIN_SECONDS",
    ),
    (
        lambda s: s.write_margin_seconds + s.lease_request_seconds < s.renew_deadline_seconds,
        "VGPU_WRITE_MARGIN_SECONDS and VGPU_LEASE_REQUEST_SECONDS together must be below "
        "VGPU_RENEW_DEADLINE_SECONDS",
    ),
    (
        lambda s: s.retry_seconds < s.renew_deadline_seconds,
        "VGPU_RETRY_SECONDS must be below VGPU_RENEW_DEADLINE_SECONDS",
    ),
    (
        lambda s: s.http_port != s.extender_port or s.http_host != s.extender_host,
        "VGPU_HTTP_PORT and VGPU_EXTENDER_PORT must differ on one host",
    ),
)
"""What settings must be to each other, and what to say where they are not."""


def check_together(settings: OperatorSettings) -> None:
    """Raises ConfigurationError naming each rule that the settings break together."""
    broken = [text for holds, text in RULES if not holds(settings)]
    if broken:
        raise ConfigurationError("; ".join(broken))


def settings_from_environment(environment: Mapping[str, str] = os.environ) -> OperatorSettings:
    """Read VGPU_... variables. Raises ConfigurationError naming each wrong one, and each that looks misspelt.

    Other variables with the prefix belong to others (the agent, for example) and are left alone.
    """
    known = {ENV_PREFIX + name.upper(): name for name in OperatorSettings.model_fields}
    lines = [f"{wrong} is no setting: did you mean {right}?" for wrong, right in _misspelt(environment, known)]
    given = {known[key]: value for key, value in environment.items() if key in known}
    try:
        settings = OperatorSettings.model_validate(given)
    except ValidationError as error:
        lines += [
            f"{ENV_PREFIX}{str(e['loc'][0]).upper()}: {must_be(e)}, got {e['input']!r}" for e in error.errors()
        ]
        raise ConfigurationError("; ".join(lines)) from error
    if lines:
        raise ConfigurationError("; ".join(lines))
    check_together(settings)
    return settings


def _misspelt(environment: Mapping[str, str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Variables that are nearly, but not quite, a setting, each with the nearest setting."""
    for name in environment:
        if name.startswith(ENV_PREFIX) and name not in known:
            for near in get_close_matches(name, known, n=1, cutoff=0.9):
                yield name, near
