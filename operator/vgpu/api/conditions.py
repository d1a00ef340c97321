"""A status condition as Kubernetes writes it. Values only."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from vgpu.api.model import ApiModel, Count

LONGEST_MESSAGE = 32768


class ConditionStatus(StrEnum):
    """True, False or Unknown."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """One condition; `reason` is a PascalCase word that people alert on, `message` is for them to read."""

    type: Annotated[str, Field(min_length=1, max_length=316)] = Field(description="what it is of, such as Ready")
    status: ConditionStatus = Field(description="whether it holds: True, False or Unknown")
    reason: Annotated[str, Field(min_length=1, max_length=1024)] = Field(description="why, as one PascalCase word")
    message: Annotated[str, Field(max_length=LONGEST_MESSAGE)] = Field("", description="why, for people to read")
    last_transition_time: str = Field(
        "", description="since when the status is what it is", json_schema_extra={"format": "date-time"}
    )
    observed_generation: Count = Field(0, description="generation of the spec that this is about")
