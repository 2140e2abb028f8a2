"""The way to a cluster: client settings, waiting for answers, and what errors mean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli import diagnosis, exit_codes
from penstock.cli.cluster_choice import Address
from penstock.cli.errors import CliError
from penstock.cli.suggestions import did_you_mean
from penstock.config import ConfigError, parse_properties

if TYPE_CHECKING:
    from penstock.cli.library import AdminClient, ClusterMetadata, Consumer, KafkaError, Producer, TopicMetadata

T = TypeVar("T")

POLL_S = 0.02
COORDINATOR_BACKOFF_S = 0.1
METADATA_TIMEOUT_S = 2.0
METADATA_SLICE_S = 0.5
CLIENT_ID = "penstock-cli"
BOOTSTRAP = "bootstrap.servers"
# A consumer of librdkafka must be in a group. Nothing is subscribed to and nothing committed, so it is never joined.
GROUP_ID = "penstock-cli"

_JAAS_PAIR = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')

_UNKNOWN_TOPIC_CONFIG = re.compile(r"Unknown topic config name: (\S+)")

_CODE_OF: dict[str, int] = {
    "UNKNOWN_TOPIC_OR_PART": exit_codes.NOT_FOUND,
    "UNKNOWN_TOPIC_ID": exit_codes.NOT_FOUND,
    "_UNKNOWN_TOPIC": exit_codes.NOT_FOUND,
    "_UNKNOWN_PARTITION": exit_codes.NOT_FOUND,
    "GROUP_ID_NOT_FOUND": exit_codes.NOT_FOUND,
    "TOPIC_ALREADY_EXISTS": exit_codes.ALREADY_EXISTS,
    "INVALID_CONFIG": exit_codes.REFUSED,
    "INVALID_PARTITIONS": exit_codes.REFUSED,
    "INVALID_REPLICA_ASSIGNMENT": exit_codes.REFUSED,
    "INVALID_REPLICATION_FACTOR": exit_codes.REFUSED,
    "INVALID_REQUEST": exit_codes.REFUSED,
    "INVALID_TOPIC_EXCEPTION": exit_codes.REFUSED,
    "TOPIC_EXCEPTION": exit_codes.REFUSED,
    "INVALID_GROUP_ID": exit_codes.REFUSED,
    "NON_EMPTY_GROUP": exit_codes.REFUSED,
    "UNKNOWN_MEMBER_ID": exit_codes.REFUSED,
    "POLICY_VIOLATION": exit_codes.REFUSED,
    "TOPIC_DELETION_DISABLED": exit_codes.REFUSED,
    "UNSUPPORTED_VERSION": exit_codes.REFUSED,
    "_UNSUPPORTED_FEATURE": exit_codes.REFUSED,
    "CLUSTER_AUTHORIZATION_FAILED": exit_codes.NOT_AUTHORIZED,
    "GROUP_AUTHORIZATION_FAILED": exit_codes.NOT_AUTHORIZED,
    "TOPIC_AUTHORIZATION_FAILED": exit_codes.NOT_AUTHORIZED,
    "SASL_AUTHENTICATION_FAILED": exit_codes.NOT_AUTHORIZED,
    "_AUTHENTICATION": exit_codes.NOT_AUTHORIZED,
    "_ALL_BROKERS_DOWN": exit_codes.UNREACHABLE,
    "_RESOLVE": exit_codes.UNREACHABLE,
    "_TRANSPORT": exit_codes.UNREACHABLE,
    "REQUEST_TIMED_OUT": exit_codes.TIMED_OUT,
    "_TIMED_OUT": exit_codes.TIMED_OUT,
    "_MSG_TIMED_OUT": exit_codes.TIMED_OUT,
}

PASSING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
"""Errors that pass by themselves: the coordinator of a group is being set up, or moved."""


class Cluster:
    """A cluster, as the command line names it."""

    def __init__(self, bootstrap_server: str, command_config: Path | None, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        own = bootstrap_server.properties if isinstance(bootstrap_server, Address) else {}
        given = read_properties(command_config) if command_config is not None else {}
        named = given.pop(BOOTSTRAP, None)
        is_default = isinstance(bootstrap_server, Address) and bootstrap_server.is_default
        self.bootstrap_server = named if named is not None and is_default else bootstrap_server
        self.properties = {**own, **given}
        self._all_down = False
        self._reasons: list[str] = []

    @cached_property
    def admin(self) -> AdminClient:
        from penstock.cli.library import AdminClient

        return _make(AdminClient, self._settings({}))

    def producer(self, settings: Mapping[str, object]) -> Producer:
        from penstock.cli.library import Producer

        return _make(Producer, self._settings(settings))

    def consumer(self, settings: Mapping[str, object]) -> Consumer:
        from penstock.cli.library import Consumer

        return _make(
            Consumer,
            self._settings(
                {
                    "group.id": GROUP_ID,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    **settings,
                }
            ),
        )

    def wait(self, future: Future[T], doing: str) -> T:
        """The result of an administrative request, or the CliError that says why there is none."""
        from penstock.cli.library import KafkaException

        try:
            return self._result(future, doing)
        except KafkaException as error:
            raise self.failure(error.args[0], doing) from None

    def wait_for_coordinator(self, ask: Callable[[], Future[T]], doing: str) -> T:
        """As `wait`, for a request that is asked again while the coordinator is being set up or moved."""
        from penstock.cli.library import KafkaException

        deadline_s = time.monotonic() + self.timeout_s
        while True:
            try:
                return self._result(ask(), doing)
            except KafkaException as error:
                if error.args[0].name() not in PASSING or time.monotonic() > deadline_s:
                    raise self.failure(error.args[0], doing) from None
                time.sleep(COORDINATOR_BACKOFF_S)

    def topics(self) -> Mapping[str, TopicMetadata]:
        """All topics of the cluster."""
        topics: Mapping[str, TopicMetadata] = self._metadata("list the topics").topics
        return topics

    def broker_ids(self) -> list[int]:
        return sorted(self._metadata("find the brokers").brokers)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; the topic is not created by asking."""
        from penstock.cli.library import TopicCollection

        futures = self.admin.describe_topics(TopicCollection([topic]), request_timeout=self.timeout_s)
        try:
            return len(self.wait(futures[topic], f"find the topic {topic}").partitions)
        except CliError as error:
            raise self.no_topic(topic) if error.code == exit_codes.NOT_FOUND else error from None

    def no_topic(self, topic: str) -> CliError:
        """There is no such topic; proposes the one that is nearest in name."""
        return CliError(
            f"there is no topic {topic}{did_you_mean(topic, self.topics())}",
            exit_codes.NOT_FOUND,
            "`penstock topics list` shows the topics there are",
        )

    def fail_fast(self) -> None:
        """Ends the command as soon as it is certain that nothing listens at any address, instead of at its timeout."""
        if not self._all_down:
            return
        self._all_down = False
        # The library says so after its first attempt, which may have been the wrong one of a name's addresses.
        if not diagnosis.accepts_connections(diagnosis.split_addresses(self.bootstrap_server)):
            raise self.unreachable()

    def failure(self, error: KafkaError, doing: str) -> CliError:
        """Translate an error of the client library into a CliError."""
        code = _CODE_OF.get(error.name(), exit_codes.FAILED)
        if code == exit_codes.TIMED_OUT and error.code() < 0:
            return self.unanswered(doing)
        if code == exit_codes.UNREACHABLE:
            return self.unreachable()
        return CliError(f"could not {doing}: {_words(error)}{_meant(error)}", code, _hint(error.name()))

    def unanswered(self, doing: str) -> CliError:
        """No answer in time: the cluster is away, or tells its clients addresses that they cannot reach, or is slow."""
        findings = self._findings()
        if not any(finding.speaks_kafka for finding in findings):
            return self.unreachable(findings)
        if lost := self._lost_brokers():
            return lost
        return CliError(
            f"could not {doing}: {self.bootstrap_server} did not answer within {self.timeout_s:g} s",
            exit_codes.TIMED_OUT,
            "give it more time with --timeout, and look at the broker's log",
        )

    def unreachable(self, findings: list[diagnosis.Finding] | None = None) -> CliError:
        """Diagnose each address of the cluster that has not been diagnosed yet."""
        refused = [reason for reason in self._reasons if "SASL authentication error" in reason]
        if refused:
            return CliError(
                f"could not authenticate: {refused[-1]}",
                exit_codes.NOT_AUTHORIZED,
                "check user and password in --command-config, or in the profile",
            )
        lines = [f"cannot reach a Kafka cluster at {self.bootstrap_server}"]
        advice: list[str] = []
        for finding in findings or self._findings():
            lines.append(f"  {finding.address}: {finding.text}")
            if finding.advice and finding.advice not in advice:
                advice.append(finding.advice)
        advice.append(
            "name the cluster with --bootstrap-server HOST:PORT or --profile, or start one with `penstock up`"
        )
        lines += [f"  {reason}" for reason in self._reasons[-1:] if "SASL" in reason or "SSL" in reason]
        return CliError("\n".join(lines), exit_codes.UNREACHABLE, "; ".join(advice))

    def _result(self, future: Future[T], doing: str) -> T:
        deadline_s = time.monotonic() + self.timeout_s
        while not future.done():
            self.admin.poll(POLL_S)
            self.fail_fast()
            if time.monotonic() > deadline_s:
                raise self.unanswered(doing)
        return future.result()

    def _metadata(self, doing: str) -> ClusterMetadata:
        """The metadata of all topics. The call blocks, so it is split, to notice early if no broker is reachable."""
        from penstock.cli.library import KafkaException

        deadline_s = time.monotonic() + self.timeout_s
        while True:
            try:
                return self.admin.list_topics(timeout=min(METADATA_SLICE_S, self.timeout_s))
            except KafkaException as error:
                if error.args[0].name() not in ("_TRANSPORT", "_TIMED_OUT"):
                    raise self.failure(error.args[0], doing) from None
                self.admin.poll(POLL_S)
                self.fail_fast()
                if time.monotonic() > deadline_s:
                    raise self.unanswered(doing) from None

    def _lost_brokers(self) -> CliError | None:
        from penstock.cli.library import AdminClient, KafkaException

        try:
            # A new client: the one at hand may be waiting before it tries again.
            client = _make(AdminClient, self._settings({}))
            brokers = client.list_topics(timeout=METADATA_TIMEOUT_S).brokers.values()
        except KafkaException:
            return None
        findings = diagnosis.examine(f"{broker.host}:{broker.port}" for broker in brokers)
        lost = [finding for finding in findings if not finding.speaks_kafka]
        if not lost:
            return None
        lines = [f"{self.bootstrap_server} answers, but sends its clients to addresses that cannot be used from here:"]
        lines += [f"  {finding.address}: {finding.text}" for finding in lost]
        return CliError(
            "\n".join(lines),
            exit_codes.UNREACHABLE,
            "set advertised.listeners of the brokers to addresses that their clients can reach",
        )

    def _findings(self) -> list[diagnosis.Finding]:
        return diagnosis.examine(diagnosis.split_addresses(self.bootstrap_server))

    def _settings(self, settings: Mapping[str, object]) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_server,
            "client.id": CLIENT_ID,
            # The command reports errors itself.
            "log_level": 0,
            "error_cb": self._on_error,
            **self.properties,
            **settings,
        }

    def _on_error(self, error: KafkaError) -> None:
        self._reasons.append(error.str())
        if error.name() == "_ALL_BROKERS_DOWN":
            self._all_down = True


def parse_settings(texts: list[str], option: str) -> dict[str, str]:
    """Repeated `key=value` options as a mapping."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CliError(f"{option} {text}: this is not of the form key=value", exit_codes.USAGE)
        settings[key.strip()] = value
    return settings


def _make(factory: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    from penstock.cli.library import KafkaException

    try:
        return factory(settings)
    except KafkaException as error:
        raise CliError(
            f"the client settings are not valid: {error.args[0].str()}",
            exit_codes.USAGE,
            "the names are librdkafka's; see --property and the file given with --command-config",
        ) from None


def read_properties(path: Path) -> dict[str, str]:
    """The file given with --command-config: librdkafka's names, and Java's where they mean the same."""
    try:
        properties = parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}", exit_codes.USAGE) from None
    except (ConfigError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {path}: {error}", exit_codes.USAGE) from None
    jaas = properties.pop("sasl.jaas.config", None)
    if jaas is not None:
        properties.update({f"sasl.{key}": value.replace('\\"', '"') for key, value in _JAAS_PAIR.findall(jaas)})
    return properties


def _words(error: KafkaError) -> str:
    text: str = error.str()
    return text.removeprefix("Broker: ").removeprefix("Local: ")


def _meant(error: KafkaError) -> str:
    """The property that was probably meant, where a broker does not know one of a topic."""
    unknown = _UNKNOWN_TOPIC_CONFIG.search(error.str())
    if unknown is None:
        return ""
    from penstock.config import TOPIC

    return did_you_mean(unknown[1], TOPIC)


def _hint(name: str) -> str:
    if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        return "`penstock topics list` shows the topics there are"
    if name == "GROUP_ID_NOT_FOUND":
        return "`penstock groups list` shows the groups there are"
    if name == "NON_EMPTY_GROUP":
        return "stop the consumers of the group, wait until `penstock groups members` shows none, and try again"
    if name == "TOPIC_ALREADY_EXISTS":
        return "accept that with --if-not-exists, or change the topic with `penstock topics alter`"
    if name == "INVALID_REPLICATION_FACTOR":
        return "a topic cannot have more replicas than the cluster has brokers"
    if name in ("UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"):
        return "this cluster does not support the request"
    return ""
