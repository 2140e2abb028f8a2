"""A broker's configuration: parsed, checked as a whole, and offered as plain attributes.

A property takes its value from the first level that sets it: run-time settings of this broker, run-time settings of all
brokers, static settings (file and command line), the default. A change at run time creates a new object, so an object
always shows a consistent state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from penstock.config.broker_table import BROKER, BrokerProperties
from penstock.config.definitions import ConfigError, Definition, UpdateMode, Value, parse
from penstock.config.inert_table import SETTABLE
from penstock.config.listener_security import ListenerSecurity, listener_security, split_property
from penstock.config.listeners import (
    LISTENER_LIMITS,
    LISTENER_PREFIX,
    Endpoint,
    ListenerLimits,
    QuorumVoter,
    parse_endpoints,
    parse_host_port,
    parse_listener_limits,
    parse_protocol_map,
    parse_voters,
)
from penstock.config.security_table import MECHANISMS, OF_LISTENER
from penstock.config.tables import View
from penstock.config.topic import TopicConfig
from penstock.config.unserved import NOT_YET, WITHOUT_MEANING, refusal
from penstock.wire.errors import ErrorCode, KafkaError

WILDCARD_HOSTS = ("0.0.0.0", "::")


class BrokerConfig(BrokerProperties, View):
    """The effective configuration of a broker. If a property has fallbacks in other units (`log.retention.ms`,
    `log.retention.minutes`, `log.retention.hours`), the attribute of the finest unit holds the result in ms."""

    topic_defaults: TopicConfig
    """The configuration of a topic without settings of its own."""
    listener_limits: Mapping[str, ListenerLimits]
    """Limits of single listeners, by name."""
    listener_security: Mapping[str, ListenerSecurity]
    """The security of each listener of this node, and of those of others that this node connects to, by name."""
    controller_listener_name: str
    """The name of the controllers' listener; empty if there is none."""
    warnings: tuple[str, ...]
    """Warnings for the operator: settings without effect, unknown names."""
    values: Mapping[str, Value]
    """Each property by Kafka's name, as it is set, without fallbacks."""
    static: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]

    @classmethod
    def resolve(
        cls,
        static: Mapping[str, str],
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> Self:
        """The effective configuration. Raises ConfigError with all problems of the static settings.

        Dynamic settings were checked when they were made. One that is no longer valid (made by another version) is
        skipped with a warning: if it stopped the broker from starting, nobody could remove it.
        """
        warnings: list[str] = []
        problems: list[str] = []
        values = _static_values(static, warnings, problems)
        for level in (dynamic_default or {}, dynamic_broker or {}):
            for name, text in level.items():
                try:
                    values[name] = _dynamic_value(name, text)
                except ValueError as error:
                    is_secret = name in SETTABLE and SETTABLE[name].sensitive
                    shown = name if is_secret else f"{name}={text}"
                    warnings.append(f"the run-time setting {shown} is ignored: {error}")
                    continue
                if _is_without_effect(SETTABLE[name], values[name]):
                    warnings.append(f"the run-time setting {name} has no effect here: {SETTABLE[name].no_effect}")
        attributes = _derive(values, static, problems)
        if problems:
            raise ConfigError(problems)
        attributes.update(
            values=values,
            warnings=tuple(warnings),
            static=dict(static),
            dynamic_default=dict(dynamic_default or {}),
            dynamic_broker=dict(dynamic_broker or {}),
        )
        return cls.of(attributes)

    def with_dynamic(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> Self:
        """The same static settings with other dynamic ones."""
        return self.resolve(self.static, dynamic_default, dynamic_broker)

    def changed_since(self, older: BrokerConfig) -> tuple[str, ...]:
        """The names of the properties whose values differ, sorted."""
        return tuple(name for name in sorted(SETTABLE) if self.values[name] != older.values[name])


def validate_broker_config(name: str, text: str | None, *, per_broker: bool) -> Value:
    """The value of a dynamic broker property. Raises KafkaError(INVALID_REQUEST), Kafka's code here, if it cannot be
    set at run time, or not for a single broker."""
    try:
        if text is None:
            raise ValueError("it needs a value")
        value = _dynamic_value(name, text)
        if SETTABLE[name].mode is UpdateMode.PER_BROKER and not per_broker:
            raise ValueError("it can only be set for one broker, not for all at once")
    except ValueError as error:
        # The value of an unsupported property is not repeated: it may be a password.
        definition = SETTABLE.get(name)
        shown = "setting" if definition is None or definition.sensitive else f"value {text}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid {shown} for configuration {name}: {error}") from None
    return value


def validate_broker_configs(settings: Mapping[str, str | None], broker: BrokerConfig, *, per_broker: bool) -> None:
    """Raises KafkaError(INVALID_REQUEST) if `broker` could not run with these dynamic settings."""
    for name, text in settings.items():
        validate_broker_config(name, text, per_broker=per_broker)
    texts = {name: text for name, text in settings.items() if text is not None}
    try:
        if per_broker:
            broker.with_dynamic(broker.dynamic_default, texts)
        else:
            broker.with_dynamic(texts, broker.dynamic_broker)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "; ".join(error.problems)) from None


def _static_values(static: Mapping[str, str], warnings: list[str], problems: list[str]) -> dict[str, Value]:
    values: dict[str, Value] = {name: definition.default for name, definition in SETTABLE.items()}
    for name, text in static.items():
        definition = SETTABLE.get(name)
        if definition is not None:
            try:
                values[name] = parse(definition, _without_order(name, text))
            except ValueError as error:
                problems.append(f"{name}: {error}" if definition.sensitive else f"{name}={text.strip()}: {error}")
            if _is_without_effect(definition, values[name]):
                warnings.append(f"{name} has no effect here: {definition.no_effect}")
        elif name == "broker.id":
            _merge_broker_id(text, static, values, problems)
        elif name in NOT_YET:
            reason = refusal(name, text)
            if reason is not None:
                problems.append(reason)
        elif name in WITHOUT_MEANING:
            warnings.append(f"{name} has no effect here: {WITHOUT_MEANING[name]}")
        elif name.startswith(LISTENER_PREFIX):
            if not is_for_listener(name):
                problems.append(f"{name} is refused: {_reason_for_listener(name)}")
        else:
            hint = _did_you_mean(name) or " and is ignored, as in Kafka"
            warnings.append(f"{name} is not a known broker property{hint}")
    return values


def is_for_listener(name: str) -> bool:
    """Whether `listener.name.<listener>.<property>` ends with a property that listeners have of their own."""
    return any(
        name.endswith("." + own) and len(name) > len(LISTENER_PREFIX) + len(own) + 1
        for own in (
            *OF_LISTENER,
            *LISTENER_LIMITS,
            *(f"{mechanism.lower()}.sasl.jaas.config" for mechanism in MECHANISMS),
        )
    )


def _reason_for_listener(name: str) -> str:
    """Why a property with a listener prefix is refused."""
    if is_for_listener(name):
        return "it cannot change at run time; set it in the broker's file and restart"
    _, _, of_broker = name.removeprefix(LISTENER_PREFIX).partition(".")
    if of_broker in NOT_YET:
        return NOT_YET[of_broker].reason
    return "settings for a single listener are not supported yet; set it for the whole broker"


def _is_without_effect(definition: Definition, value: Value) -> bool:
    """Whether the value requests something that does not happen here. The default requests nothing."""
    if definition.name == "num.network.threads" and value == 1:
        return False  # the event loop is one thread
    return definition.no_effect != "" and value != definition.default


def _without_order(name: str, text: str) -> str:
    """Normalise the order of process roles; other values are unchanged."""
    return ",".join(sorted(role.strip() for role in text.split(","))) if name == "process.roles" else text


def _merge_broker_id(text: str, static: Mapping[str, str], values: dict[str, Value], problems: list[str]) -> None:
    try:
        broker_id = parse(BROKER["node.id"], text)
    except ValueError as error:
        problems.append(f"broker.id={text.strip()}: {error}")
        return
    if "node.id" in static and static["node.id"].strip() != str(broker_id):
        problems.append(f"broker.id={text.strip()} and node.id={static['node.id'].strip()} differ; set only node.id")
    values["node.id"] = broker_id


def mistyped_properties(names: Iterable[str]) -> dict[str, str]:
    """Misspelt property names, each with the broker property that was probably meant."""
    known = {*SETTABLE, *NOT_YET, *WITHOUT_MEANING, "broker.id"}
    unknown = [name for name in names if name not in known and not name.startswith(LISTENER_PREFIX)]
    return {name: meant for name in unknown if (meant := _nearest(name)) is not None}


def _did_you_mean(name: str) -> str:
    meant = _nearest(name)
    return f"; did you mean {meant}?" if meant is not None else ""


def _nearest(name: str) -> str | None:
    # Imported here because it is needed only after a mistake and would slow down every start.
    from difflib import get_close_matches

    matches = get_close_matches(name, SETTABLE, n=1, cutoff=0.85)
    return matches[0] if matches else None


def _dynamic_value(name: str, text: str) -> Value:
    definition = SETTABLE.get(name)
    if definition is None:
        if name in NOT_YET:
            raise ValueError(NOT_YET[name].reason)
        if name in WITHOUT_MEANING:
            raise ValueError(f"it cannot change at run time, and has no effect here: {WITHOUT_MEANING[name]}")
        if name.startswith(LISTENER_PREFIX):
            raise ValueError(_reason_for_listener(name))
        raise ValueError(f"there is no such broker property{_did_you_mean(name)}")
    if definition.mode is UpdateMode.READ_ONLY:
        raise ValueError("it cannot change at run time; set it in the broker's file and restart")
    return parse(definition, text)


def _derive(values: dict[str, Value], static: Mapping[str, str], problems: list[str]) -> dict[str, object]:
    """Attributes computed from values, including those that depend on several properties; appends to `problems`."""
    effective = {
        name: _first_set(definition, values) if definition.fallbacks else definition.scaled(values[name])
        for name, definition in BROKER.items()
    }
    attributes: dict[str, object] = {
        definition.attribute: effective[name] for name, definition in BROKER.items() if not definition.is_folded
    }
    attributes["log_dir"] = _data_directory(values, problems)
    attributes["max_connections_per_ip_overrides"] = _ip_overrides(values, problems)
    attributes["topic_defaults"] = TopicConfig.of_broker(effective)
    attributes.update(_endpoints(values, static, problems))
    attributes["listener_security"] = _security(values, static, attributes, problems)
    attributes.update(_quorum(values, attributes, problems))
    _check_limits(values, problems)
    attributes["listener_limits"] = {}
    try:
        endpoints = attributes["listeners"]
        assert isinstance(endpoints, tuple)
        attributes["listener_limits"] = parse_listener_limits(static, [endpoint.name for endpoint in endpoints])
    except ValueError as error:
        problems.append(str(error))
    return attributes


def _first_set(definition: Definition, values: Mapping[str, Value]) -> int:
    """The value of a property with fallbacks: the first that is set, converted to the property's own unit."""
    for name, factor in ((definition.name, 1), *definition.fallbacks):
        value = values[name]
        if value is not None:
            assert isinstance(value, int)
            return value * factor if value >= 0 else -1
    raise AssertionError(f"the last fallback of {definition.name} has no default")


def _data_directory(values: Mapping[str, Value], problems: list[str]) -> str:
    directories = values["log.dirs"]
    if directories is None:
        return str(values["log.dir"])
    assert isinstance(directories, tuple)
    if len(directories) > 1:
        problems.append(
            f"log.dirs names {len(directories)} directories, but a broker has one. "
            f"Run one broker per directory: penstock up --brokers {len(directories)}"
        )
    return directories[0]


def _ip_overrides(values: Mapping[str, Value], problems: list[str]) -> dict[str, int]:
    overrides: dict[str, int] = {}
    for item in str(values["max.connections.per.ip.overrides"]).split(","):
        if not item.strip():
            continue
        address, _, count = item.strip().rpartition(":")
        if not address or not count.isascii() or not count.isdigit():
            problems.append(
                f"max.connections.per.ip.overrides: {item.strip()!r} is not ADDRESS:COUNT, as in 127.0.0.1:200"
            )
            continue
        overrides[address.strip("[]")] = int(count)
    if values["max.connections.per.ip"] == 0 and not overrides:
        problems.append(
            "max.connections.per.ip=0 would refuse everyone; list allowed addresses in max.connections.per.ip.overrides"
        )
    return overrides


def _endpoints(values: Mapping[str, Value], static: Mapping[str, str], problems: list[str]) -> dict[str, object]:
    controller_names = values["controller.listener.names"]
    assert isinstance(controller_names, tuple)
    controller_names = tuple(name.upper() for name in controller_names)
    listeners: tuple[Endpoint, ...] = ()
    advertised: tuple[Endpoint, ...] = ()
    controllers: tuple[Endpoint, ...] = ()
    property_name = "listener.security.protocol.map"
    try:
        protocols = parse_protocol_map(str(values[property_name]))
        if property_name not in static:
            # As in Kafka: without a map, a controller listener needs no entry.
            protocols.update((name, "PLAINTEXT") for name in controller_names)
        property_name = "listeners"
        entries = values["listeners"]
        assert isinstance(entries, tuple)
        bound = parse_endpoints(entries, protocols)
        listeners = tuple(endpoint for endpoint in bound if endpoint.name not in controller_names)
        controllers = tuple(endpoint for endpoint in bound if endpoint.name in controller_names)
        roles = values["process.roles"]
        assert isinstance(roles, tuple)
        if "broker" not in roles:
            if listeners:
                raise ValueError(f"has {listeners[0]}, but a node without the broker role does not serve clients")
        elif not listeners:
            raise ValueError("has only controller listeners; add one for clients, such as PLAINTEXT://127.0.0.1:9092")
        if "controller" not in roles and controllers:
            raise ValueError(f"has {controllers[0]}, but a node without the controller role has no controller listener")
        advertised = listeners
        property_name = "advertised.listeners"
        entries = values["advertised.listeners"]
        if entries is not None:
            assert isinstance(entries, tuple)
            advertised = tuple(e for e in parse_endpoints(entries, protocols) if e.name not in controller_names)
            _check_advertised(advertised, listeners)
    except ValueError as error:
        problems.append(f"{property_name} {error}")
    inter_broker = values["inter.broker.listener.name"]
    if inter_broker is not None and advertised and str(inter_broker).upper() not in [e.name for e in advertised]:
        problems.append(f"inter.broker.listener.name={inter_broker} is not one of the advertised listeners")
    if inter_broker is None and advertised:
        wanted = str(values["security.inter.broker.protocol"])
        if wanted == "PLAINTEXT":
            inter_broker = advertised[0].name
        else:
            inter_broker = next((e.name for e in advertised if e.security_protocol == wanted), None)
            if inter_broker is None:
                problems.append(f"security.inter.broker.protocol={wanted}, but no advertised listener uses it")
    return {
        "controller_listener_name": controller_names[0] if controller_names else "",
        "listeners": listeners,
        "controller_listeners": controllers,
        "advertised_listeners": advertised,
        "inter_broker_listener_name": str(inter_broker or "").upper(),
    }


def _security(
    values: Mapping[str, Value], static: Mapping[str, str], attributes: Mapping[str, object], problems: list[str]
) -> dict[str, ListenerSecurity]:
    protocols: dict[str, str] = {}
    for key in ("listeners", "controller_listeners", "advertised_listeners"):
        endpoints = attributes[key]
        assert isinstance(endpoints, tuple)
        protocols.update((endpoint.name, endpoint.security_protocol) for endpoint in endpoints)
    # A node connects to listeners of other nodes that it does not have itself, if it lacks the other role.
    for name in (str(attributes["controller_listener_name"]), str(attributes["inter_broker_listener_name"])):
        if name and name not in protocols:
            try:
                named = parse_protocol_map(str(values["listener.security.protocol.map"]))
            except ValueError:
                named = {}
            protocols[name] = named.get(name, "PLAINTEXT")
    own: dict[str, dict[str, str]] = {name: {} for name in protocols}
    for name, text in static.items():
        if name.startswith(LISTENER_PREFIX) and is_for_listener(name):
            found = split_property(name, protocols)
            if found is None:
                problems.append(f"{name} is for a listener that is not in listeners")
            else:
                own[found[0]][found[1]] = text
    return {
        name: listener_security(name, protocol, values, own[name], problems) for name, protocol in protocols.items()
    }


def _check_advertised(advertised: tuple[Endpoint, ...], listeners: tuple[Endpoint, ...]) -> None:
    names = [listener.name for listener in listeners]
    if not advertised:
        raise ValueError("has no listener for clients")
    for endpoint in advertised:
        if endpoint.name not in names:
            raise ValueError(f"has {endpoint.name}, which is not in listeners")
        if endpoint.host in WILDCARD_HOSTS:
            raise ValueError(f"has {endpoint}, which clients cannot connect to; use a host name or address")


def _quorum(values: Mapping[str, Value], attributes: Mapping[str, object], problems: list[str]) -> dict[str, object]:
    """The voters and their addresses. A node that names only itself is a cluster of one."""
    entries = values["controller.quorum.voters"]
    servers = values["controller.quorum.bootstrap.servers"]
    controllers = attributes["controller_listeners"]
    roles = attributes["process_roles"]
    node_id = attributes["node_id"]
    assert isinstance(entries, tuple)
    assert isinstance(servers, tuple)
    assert isinstance(controllers, tuple)
    assert isinstance(roles, tuple)
    own_ports = [endpoint.port for endpoint in controllers]
    voters: tuple[QuorumVoter, ...] = ()
    try:
        voters = parse_voters(entries)
    except ValueError as error:
        problems.append(f"controller.quorum.voters {error}")
    others = [(voter.host, voter.port) for voter in voters if voter.id != node_id]
    own = next((voter for voter in voters if voter.id == node_id), None)
    if voters and "controller" in roles and own is None:
        problems.append(
            f"controller.quorum.voters does not name this node (node.id={node_id}), which has the controller role; "
            f"add {node_id}@HOST:PORT, or set process.roles=broker"
        )
    if own is not None and "controller" not in roles:
        problems.append(
            f"controller.quorum.voters names this node (node.id={node_id}), which lacks the controller role; "
            "add controller to process.roles, or remove the node from the voters"
        )
    if own is not None and own_ports and own.port not in own_ports and 0 not in own_ports:
        problems.append(
            f"controller.quorum.voters gives this node port {own.port}, but its controller listener "
            f"uses port {own_ports[0]}"
        )
    for server in servers:
        try:
            address = parse_host_port(server)
        except ValueError as error:
            problems.append(f"controller.quorum.bootstrap.servers: {error}")
            continue
        # A node may name its own listener by any of the machine's names; if it is the only server, the port identifies
        # it.
        is_own = any(address == (e.host, e.port) for e in controllers) or (
            "controller" in roles and len(servers) == 1 and (not own_ports or address[1] in own_ports)
        )
        if not is_own and address not in others:
            others.append(address)
    if others and "controller" in roles and not controllers:
        named_by = "controller.quorum.voters" if entries else "controller.quorum.bootstrap.servers"
        problems.append(
            f"{named_by} names other controllers, which must reach this node, but controller.listener.names names no "
            "listener of this node; set controller.listener.names=CONTROLLER, add CONTROLLER://HOST:PORT to listeners"
        )
    if "controller" not in roles and not others:
        problems.append(
            "process.roles=broker needs controllers on other nodes; name them in controller.quorum.bootstrap.servers "
            "or controller.quorum.voters"
        )
    return {"quorum_voters": voters, "quorum_servers": tuple(others)}


def _check_limits(values: Mapping[str, Value], problems: list[str]) -> None:
    def number(name: str) -> int:
        value = values[name]
        assert isinstance(value, int)
        return value

    def not_above(name: str, ceiling: str, why: str) -> None:
        if number(name) > number(ceiling):
            problems.append(f"{name}={number(name)} exceeds {ceiling}={number(ceiling)}: {why}")

    not_above("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "a fetch would time out before its response")
    not_above("replica.fetch.wait.max.ms", "replica.lag.time.max.ms", "a waiting follower would leave the ISR")
    not_above("group.min.session.timeout.ms", "group.max.session.timeout.ms", "no session timeout would be allowed")
    for timer in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        name = f"group.consumer.{timer}"
        not_above(f"group.consumer.min.{timer}", name, "the default would not be allowed")
        not_above(name, f"group.consumer.max.{timer}", "the default would not be allowed")
    if number("group.consumer.heartbeat.interval.ms") >= number("group.consumer.session.timeout.ms"):
        problems.append(
            f"group.consumer.heartbeat.interval.ms={number('group.consumer.heartbeat.interval.ms')} must be below "
            f"group.consumer.session.timeout.ms={number('group.consumer.session.timeout.ms')}: "
            "members would be removed between two heartbeats"
        )
    not_above(
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        "a record could be required to be compacted before that is allowed",
    )
    if number("queued.max.request.bytes") > 0:
        not_above("socket.request.max.bytes", "queued.max.request.bytes", "the largest request could never be read")
