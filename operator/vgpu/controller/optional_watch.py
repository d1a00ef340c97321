"""A watch of a kind that the API server may not serve: run while it does, and nothing when it does not.

Enters: in which versions the kind is read, whether it is defined, a call to look whether one is served. Leaves: a
running reflector, or everything dropped again. It looks when told to: when a definition of the kind comes or goes,
and at each beginning of a leadership. An absent kind is no fault.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from vgpu.errors import ApiError, ApiRefused
from vgpu.kube.backoff import Backoff
from vgpu.kube.client import ApiClient
from vgpu.kube.reflector import Reflector

LOG = logging.getLogger(__name__)
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class OptionalKind:
    """`versions` in order of preference; `reflect` makes a reflector of a path, `forget` drops all it put.
    `served` is told before the kind is listed anew, and with False once it is known that it is not served."""

    group: str
    plural: str
    versions: Sequence[str]
    reflect: Callable[[str], Reflector[Any]]
    forget: Callable[[], None]
    served: Callable[[bool], None] = lambda served: None


class _Resource(BaseModel):
    name: str


class _Resources(BaseModel):
    resources: list[_Resource] = []


class OptionalWatch:
    """`reflector` is the one that runs, or None. `defined`: what is known of a definition of the kind; one that is
    there is served a moment later, and one that is gone a moment longer. None = no definition decides, the API
    server has the kind or has it not."""

    def __init__(self, client: ApiClient, kind: OptionalKind, *, defined: bool | None = None) -> None:
        self.reflector: Reflector[Any] | None = None
        self._client = client
        self._kind = kind
        self._defined = defined
        self._awaits_definitions = defined is not None
        self._version = ""
        self._task: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._asked.set()

    def look(self) -> None:
        """Look again whether the kind is served."""
        self._asked.set()

    def define(self, *, defined: bool) -> None:
        """The definition of the kind is there, or gone."""
        if self._defined is not defined:
            self._defined = defined
            self._asked.set()

    def definitions_listed(self) -> None:
        """Every definition has been seen: one that was not is not there."""
        if self._awaits_definitions:
            self._awaits_definitions = False
            self._asked.set()

    async def run(self) -> None:
        """Keep up with what is served. Runs until cancelled."""
        try:
            while True:
                await self._asked.wait()
                self._asked.clear()
                version = await self._served()
                await self._switch(version)
                if not version and not self._awaits_definitions:
                    self._kind.served(False)
        finally:
            await self._stop()

    async def _served(self) -> str:
        """The first of our versions in which the kind is served, "" for none."""
        backoff = Backoff()
        while self._defined is not False:
            try:
                for version in self._kind.versions:
                    if self._kind.plural in await self._plurals(version):
                        return version
                if self._defined is None:
                    break
            except ApiError as error:
                LOG.info("cannot tell whether %s.%s is served: %s", self._kind.plural, self._kind.group, error)
            await asyncio.sleep(backoff.next_seconds())
        return ""

    async def _plurals(self, version: str) -> Iterable[str]:
        try:
            raw = await self._client.get(f"/apis/{self._kind.group}/{version}")
        except ApiRefused as error:
            if error.status == NOT_FOUND:
                return ()
            raise
        try:
            return [resource.name for resource in _Resources.model_validate_json(raw).resources]
        except ValidationError:
            return ()

    async def _switch(self, version: str) -> None:
        if version == self._version:
            return
        await self._stop()
        self._version = version
        if version:
            LOG.info("watching %s.%s/%s", self._kind.plural, self._kind.group, version)
            self._kind.served(True)
            path = f"/apis/{self._kind.group}/{version}/{self._kind.plural}"
            self.reflector = self._kind.reflect(path)
            self._task = asyncio.create_task(self.reflector.run(), name=f"reflect {path}")

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._kind.forget()
        self._task, self.reflector, self._version = None, None, ""
