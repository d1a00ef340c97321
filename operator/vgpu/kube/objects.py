"""What a watched object is called, and what decoding one gives. Values only."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key:
    """Which object: `namespace` is "" for cluster-scoped kinds; a re-created object has another `uid`."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """One object as its decoder understands it: whose it is, at which version, and the fact."""

    key: Key
    resource_version: str
    fact: T
