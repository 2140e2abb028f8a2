"""A real Apache Kafka, to be compared with: fetched once, started on loopback, always stopped.

The jars come from wherever the machine's own Maven is set up to get them, and are kept in `.cache/` of the
repository, which git ignores. Use:

    if reason := available():
        pytest.skip(reason)
    with ApacheKafka() as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap})
        kafka_tool("TopicCommand", "--bootstrap-server", kafka.bootstrap, "--list")

The broker runs as `kafka-server-start.sh` runs it (heap and collector flags of Kafka's scripts), but without JMX and
without a garbage collection log, and with a log4j configuration that writes warnings only: what is left out can only
make it faster. It is one node that is broker and controller at once. Its replication factors of internal topics are
one, because there is no second node; all else is as Kafka ships it, unless the caller asks otherwise.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.ports import free_ports
from support.server_process import ServerProcess

VERSION = os.environ.get("PENSTOCK_APACHE_KAFKA_VERSION", "4.3.1")
JAVA_VERSION_MIN = 17
CACHE = Path(__file__).resolve().parents[2] / ".cache"

FETCH_TIMEOUT_S = 600
TOOL_TIMEOUT_S = 120

CLUSTER_ID = "cGVuc3RvY2stY29tcGFyZQ"
HEAP = "1G"
TOOL_HEAP = "256M"
JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# What lives for a few seconds, or serves a few tests, is not worth compiling thoroughly.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)
TOOL_FLAGS = (*SHORT_LIVED, "-XX:+UseSerialGC", "-Djava.awt.headless=true")

SHORT_NAMES = {
    "AclCommand": "org.apache.kafka.tools.AclCommand",
    "BrokerApiVersionsCommand": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "ClientMetricsCommand": "org.apache.kafka.tools.ClientMetricsCommand",
    "ClusterTool": "org.apache.kafka.tools.ClusterTool",
    "ConfigCommand": "kafka.admin.ConfigCommand",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "ConsoleProducer": "org.apache.kafka.tools.ConsoleProducer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "ConsumerPerformance": "org.apache.kafka.tools.ConsumerPerformance",
    "DelegationTokenCommand": "org.apache.kafka.tools.DelegationTokenCommand",
    "DeleteRecordsCommand": "org.apache.kafka.tools.DeleteRecordsCommand",
    "DumpLogSegments": "org.apache.kafka.tools.DumpLogSegments",
    "FeatureCommand": "org.apache.kafka.tools.FeatureCommand",
    "GetOffsetShell": "org.apache.kafka.tools.GetOffsetShell",
    "GroupsCommand": "org.apache.kafka.tools.GroupsCommand",
    "LeaderElectionCommand": "org.apache.kafka.tools.LeaderElectionCommand",
    "LogDirsCommand": "org.apache.kafka.tools.LogDirsCommand",
    "MetadataQuorumCommand": "org.apache.kafka.tools.MetadataQuorumCommand",
    "ProducerPerformance": "org.apache.kafka.tools.ProducerPerformance",
    "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "ShareGroupCommand": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "StorageTool": "kafka.tools.StorageTool",
    "StreamsGroupCommand": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "TopicCommand": "org.apache.kafka.tools.TopicCommand",
    "TransactionsCommand": "org.apache.kafka.tools.TransactionsCommand",
}

_POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId>
  <artifactId>apache-kafka-for-comparison</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.4</version>
    </dependency>
  </dependencies>
</project>
"""
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

_LOG4J = """Configuration:
  status: error
  Appenders:
    Console:
      name: console
      target: SYSTEM_ERR
      PatternLayout:
        pattern: "%d{ISO8601} %p %c: %m%n"
  Loggers:
    Root:
      level: warn
      AppenderRef:
        - ref: console
"""


class ApacheKafkaUnavailable(Exception):
    """Apache Kafka cannot be had on this machine; the message says why."""


class KafkaToolFailed(Exception):
    """One of Kafka's tools ended with an error; the message has its words."""


@functools.cache
def available() -> str | None:
    """None when Apache Kafka can be started here (fetching it if need be), else the reason why not."""
    try:
        installation()
    except ApacheKafkaUnavailable as reason:
        return f"Apache Kafka {VERSION} cannot be had: {reason}"
    return None


@functools.cache
def installation() -> Path:
    """The directory that holds the jars in `libs/` and the log4j configuration; fetched if it is not there yet."""
    java()
    home = CACHE / f"apache-kafka-{VERSION}"
    with locked(CACHE / f"apache-kafka-{VERSION}.lock"):
        if not home.exists():
            _fetch(home)
    return home


@functools.cache
def java() -> str:
    """The path of a Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if path is None:
        raise ApacheKafkaUnavailable(f"no java; install a Java runtime, version {JAVA_VERSION_MIN} or newer")
    told = subprocess.run([path, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    match = re.search(r'version "(\d+)', told)
    if match is None or int(match[1]) < JAVA_VERSION_MIN:
        first_line = told.strip().splitlines()[0] if told.strip() else "nothing"
        raise ApacheKafkaUnavailable(f"java {JAVA_VERSION_MIN} or newer is needed, {path} says: {first_line}")
    return path


def kafka_tool(
    main_class: str,
    *arguments: str,
    stdin: str = "",
    check: bool = True,
    timeout_s: float = TOOL_TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's command-line tools, by its class name (`TopicCommand`) or full class name.

    With `check`, a tool that exits with an error raises `KafkaToolFailed` with what it said.
    """
    command = [*java_command(TOOL_HEAP, machine=TOOL_FLAGS), SHORT_NAMES.get(main_class, main_class), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s)
    if check and done.returncode != 0:
        raise KafkaToolFailed(
            f"{main_class} {' '.join(arguments)} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done


class ApacheKafka(ServerProcess):
    """One Apache Kafka node on free loopback ports, in a directory of its own that goes when it goes."""

    name = "Apache Kafka"

    def __init__(
        self,
        *,
        heap: str = HEAP,
        properties: Mapping[str, str] | None = None,
        directory: Path | None = None,
        jvm_flags: tuple[str, ...] = (),
        features: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(directory)
        self._heap = heap
        self._jvm_flags = jvm_flags
        self._properties_path = self.directory / "server.properties"
        self._properties_path.write_text(
            _server_properties(self.port, free_ports(1)[0], self.data_dir, properties or {}), encoding="utf-8"
        )
        self._features = [f"--feature={name}={level}" for name, level in (features or {}).items()]
        self._formatted = False

    def command(self) -> list[str]:
        start = java_command(self._heap, heap_min=self._heap, flags=self._jvm_flags)
        return [*start, "kafka.Kafka", str(self._properties_path)]

    def format(self) -> None:
        """Formats the storage, as every new KRaft node needs once."""
        if not self._formatted:
            config = ("--cluster-id", CLUSTER_ID, "--config", str(self._properties_path))
            kafka_tool("StorageTool", "format", *config, *self._features)
            self._formatted = True


def _server_properties(port: int, controller_port: int, data_dir: Path, more: Mapping[str, str]) -> str:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_dir),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def java_command(
    heap_max: str,
    *,
    heap_min: str | None = None,
    machine: tuple[str, ...] = JVM_FLAGS,
    flags: tuple[str, ...] = (),
    classes: Path | None = None,
) -> list[str]:
    """What runs a class of Kafka's jars (or of `classes`) when the class name is appended."""
    home = installation()
    return [
        java(),
        f"-Xmx{heap_max}",
        *([f"-Xms{heap_min}"] if heap_min else []),
        *machine,
        *flags,
        f"-Dlog4j2.configurationFile={home / 'log4j2.yaml'}",
        "-cp",
        f"{home / 'libs'}/*" if classes is None else f"{classes}:{home / 'libs'}/*",
    ]


def _fetch(home: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ApacheKafkaUnavailable("no mvn to fetch it with; install Maven")
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=CACHE) as temporary:
        staging = Path(temporary) / home.name
        staging.mkdir()
        (staging / "pom.xml").write_text(_POM, encoding="utf-8")
        (staging / "log4j2.yaml").write_text(_LOG4J, encoding="utf-8")
        command = [
            maven, "--batch-mode", "--quiet", "--no-transfer-progress", "--file", str(staging / "pom.xml"),
            _COPY_GOAL, f"-DoutputDirectory={staging / 'libs'}", "-DincludeScope=runtime",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as late:
            raise ApacheKafkaUnavailable(f"mvn did not fetch it within {FETCH_TIMEOUT_S} s") from late
        if done.returncode != 0:
            errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
            raise ApacheKafkaUnavailable(f"mvn could not fetch it: {(errors or ['it gave no reason'])[0].strip()}")
        staging.rename(home)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps test processes that run side by side from fetching the same thing twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
