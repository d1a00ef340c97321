"""One watch of all inventories, dealt out to the publishers of a simulated fleet. A reflector's sink; no I/O."""

from vgpu.agent.publisher import Publisher
from vgpu.agent.seen import SeenInventory
from vgpu.kube.objects import Key


class SharedWatch:
    """Gives each publisher what its own watch would show. Objects of nodes without a publisher are kept."""

    def __init__(self) -> None:
        self._publishers: dict[str, Publisher] = {}
        self._seen: dict[str, SeenInventory] = {}
        self._synced = False

    def join(self, publisher: Publisher) -> None:
        """The publisher is told what is there, and all that follows."""
        self._publishers[publisher.node] = publisher
        if publisher.node in self._seen:
            publisher.put(self._seen[publisher.node])
        if self._synced:
            publisher.synced()

    def leave(self, node: str) -> None:
        """The publisher of this node is told nothing more."""
        self._publishers.pop(node, None)

    def put(self, item: SeenInventory) -> None:
        """The watch shows this object."""
        self._seen[item.name] = item
        if publisher := self._publishers.get(item.name):
            publisher.put(item)

    def drop(self, key: Key) -> None:
        """The watch shows that this object is gone."""
        self._seen.pop(key.name, None)
        if publisher := self._publishers.get(key.name):
            publisher.drop(key)

    def malformed(self, key: Key, message: str) -> None:
        """The object is there and cannot be read."""
        self._seen[key.name] = SeenInventory(key.name, key.uid, "", None)
        if publisher := self._publishers.get(key.name):
            publisher.malformed(key, message)

    def synced(self) -> None:
        """A list is complete."""
        self._synced = True
        for publisher in self._publishers.values():
            publisher.synced()
