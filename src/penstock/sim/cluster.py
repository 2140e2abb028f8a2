"""A cluster of real brokers, each on its own simulated host, in one world.

    with World(seed) as world:
        cluster = SimCluster(world, 3, {"min.insync.replicas": "2"})
        cluster.start()                      # all at once, until every broker is in service
        cluster.node(1).crash()              # kill -9; its disk stays
        cluster.await_controller()           # until another node is the active controller
        cluster.node(1).start()

        async def scenario(runtime: SimRuntime) -> None:
            client = await cluster.connect(runtime, 2)
            answer = await client.call(MetadataRequest(topics=None), 12)

        world.execute(scenario)

Node `i` (from 1) runs on the host `node-i`, and listens for clients on KAFKA_PORT and for controllers on
CONTROLLER_PORT. By default every node is broker and controller; `roles` overrides that per node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.broker.server import Stage
from penstock.config import BrokerConfig
from penstock.metadata import MetadataImage
from penstock.runtime import Runtime
from penstock.sim.broker import KAFKA_PORT, START_LIMIT_MS, ProtocolClient, SimBroker
from penstock.sim.disk import SimDisk
from penstock.sim.world import World

__all__ = ["BOTH", "BROKER", "CONTROLLER", "CONTROLLER_PORT", "SimCluster", "SimNode"]

CONTROLLER_PORT = 9192

BROKER = "broker"
CONTROLLER = "controller"
BOTH = "broker,controller"


def host_name(node_id: int) -> str:
    return f"node-{node_id}"


class SimNode(SimBroker):
    """One node of a cluster. Inherited methods start, stop (SIGTERM) and restart it; those below inject faults."""

    def __init__(
        self, world: World, node_id: int, roles: str, settings: Mapping[str, str], *, cluster: SimCluster
    ) -> None:
        super().__init__(world, settings, name=host_name(node_id))
        self.node_id = node_id
        self.roles = roles
        self._cluster = cluster

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles.split(",")

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles.split(",")

    @property
    def is_alive(self) -> bool:
        return self.host.process is not None and not self.host.process.is_dead

    @property
    def image(self) -> MetadataImage:
        """The cluster's metadata on this node."""
        return self.served.quorum.image

    @property
    def is_active_controller(self) -> bool:
        return self.is_alive and self.ready_quorum and self.served.quorum.controller is not None

    @property
    def ready_quorum(self) -> bool:
        """Whether its start has progressed far enough to have a quorum."""
        return self.broker is not None and self.broker.stage >= Stage.QUORUM

    def config(self) -> BrokerConfig:
        listeners = []
        if self.is_broker:
            listeners.append(f"PLAINTEXT://{self.name}:{KAFKA_PORT}")
        if self.is_controller:
            listeners.append(f"CONTROLLER://{self.name}:{CONTROLLER_PORT}")
        static = {
            "node.id": str(self.node_id),
            "process.roles": self.roles,
            "log.dirs": "simulated",
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self._cluster.voters,
            **self.settings,
        }
        return BrokerConfig.resolve(static)

    # ---- faults

    def crash(self) -> None:
        """kill -9: written data stays in the page cache, connections are closed by the kernel."""
        self.host.kill()

    def power_loss(self) -> None:
        """Turns the machine off until `start`; unsynced data may be lost, and peers are not notified."""
        self.host.power_loss()

    def wipe(self) -> None:
        """Replaces its disk by an empty one. The node must be down."""
        assert not self.is_alive, f"{self.name} still runs"
        self.host.disk = SimDisk(f"{self.world.seed}-{self.name}-{self.world.next_object_number()}")

    def pause(self) -> None:
        """SIGSTOP."""
        self.host.pause()

    def resume(self) -> None:
        self.host.resume()

    def isolate(self) -> None:
        """Cuts it off from all other nodes; clients still reach it."""
        for other in self._cluster.nodes:
            if other is not self:
                self.world.network.cut(self.name, other.name)

    def rejoin(self) -> None:
        """Undo `isolate`."""
        for other in self._cluster.nodes:
            if other is not self:
                self.world.network.heal(self.name, other.name)


class SimCluster:
    """Nodes 1 … `count`."""

    def __init__(
        self,
        world: World,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        roles: Sequence[str] | None = None,
    ) -> None:
        assert roles is None or len(roles) == count
        self.world = world
        self.nodes = [
            SimNode(world, index + 1, roles[index] if roles else BOTH, settings or {}, cluster=self)
            for index in range(count)
        ]
        self.founders = [node.node_id for node in self.nodes if node.is_controller]
        """The nodes in `controller.quorum.voters`."""

    @property
    def voters(self) -> str:
        """The `controller.quorum.voters` of every node."""
        return ",".join(f"{node_id}@{host_name(node_id)}:{CONTROLLER_PORT}" for node_id in self.founders)

    def node(self, node_id: int) -> SimNode:
        return self.nodes[node_id - 1]

    @property
    def live(self) -> list[SimNode]:
        return [node for node in self.nodes if node.is_alive]

    def add(self, roles: str = BROKER, settings: Mapping[str, str] | None = None) -> SimNode:
        """Adds a node without starting it. The voters stay those of the cluster's creation."""
        node = SimNode(self.world, len(self.nodes) + 1, roles, settings or {}, cluster=self)
        self.nodes.append(node)
        return node

    # ---- running

    def start(self) -> None:
        """Starts every node that is not running, and waits until all serve."""
        for node in self.nodes:
            if not node.is_alive:
                node.begin()
        self.await_ready()

    def await_ready(self) -> None:
        """Waits until all running nodes serve, every node sees their brokers in service, and controllers are voters."""

        def ready() -> bool:
            live = self.live
            if not live or not all(node.ready for node in live):
                return any(node.process.is_dead for node in self.nodes if node.host.process is not None and not live)
            wanted = [node.node_id for node in live if node.is_broker]
            voters = [node.node_id for node in live if node.is_controller and node.node_id in self.founders]
            return all(
                self._in_service(node.image, wanted)
                and all(voter in node.served.quorum.core.voter_set.ids for voter in voters)
                and node.served.quorum.core.log.voter_set_offset < node.served.quorum.core.high_watermark
                for node in live
            )

        self.world.run_until(ready, START_LIMIT_MS)
        for node in self.nodes:
            if node.host.process is not None and node.host.process.is_dead and not node.ready:
                node.host.process.result()

    @staticmethod
    def _in_service(image: MetadataImage, wanted: list[int]) -> bool:
        return all((broker := image.broker(node_id)) is not None and not broker.fenced for node_id in wanted)

    def stop(self) -> None:
        """Sends SIGTERM to all, and waits until all have ended."""
        for node in self.live:
            node.host.stop()
        self.world.run_until(lambda: not self.live, START_LIMIT_MS)

    # ---- roles

    def controller(self) -> SimNode | None:
        """The active controller of the newest epoch; None if there is none."""
        active = [node for node in self.nodes if node.is_active_controller]
        return max(active, key=lambda node: node.served.quorum.core.epoch, default=None)

    def await_controller(self, *, limit_ms: float = START_LIMIT_MS) -> SimNode:
        self.world.run_until(lambda: self.controller() is not None, limit_ms)
        found = self.controller()
        assert found is not None
        return found

    def leader_of(self, topic: str, partition: int = 0) -> SimNode | None:
        """The partition's leader, from the newest image of a live node."""
        images = [node.image for node in self.live if node.ready_quorum]
        newest = max(images, key=lambda image: image.offset, default=None)
        state = newest.partition(topic, partition) if newest is not None else None
        return None if state is None or state.leader < 1 else self.node(state.leader)

    def await_(self, condition: Callable[[], bool], *, limit_ms: float = START_LIMIT_MS) -> None:
        """Lets time pass until the condition holds."""
        self.world.run_until(condition, limit_ms)

    def await_images(self, limit_ms: float = START_LIMIT_MS) -> None:
        """Waits until all live nodes have the same image."""

        def same() -> bool:
            offsets = [node.image.offset for node in self.live if node.ready_quorum]
            return len(offsets) == len(self.live) and len(dict.fromkeys(offsets)) == 1

        self.world.run_until(same, limit_ms)

    # ---- clients

    async def connect(self, runtime: Runtime, node_id: int) -> ProtocolClient:
        """Opens a client connection to one node."""
        return await ProtocolClient.connect(runtime, self.node(node_id))

    # ---- the network between the nodes

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        self.world.network.cut(host_name(one), host_name(other), one_way=one_way)

    def heal(self, one: int, other: int, *, one_way: bool = False) -> None:
        self.world.network.heal(host_name(one), host_name(other), one_way=one_way)

    def heal_all(self) -> None:
        self.world.network.heal_all()
