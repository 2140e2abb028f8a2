"""`penstock server` and `penstock up`: a broker, or several, in the foreground.

This module imports neither the rest of the command line nor its libraries, so that a broker starts in a fraction of a
second. `server_options.py` has its options and says how they are parsed.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from penstock import __version__
from penstock.broker.server import Broker
from penstock.broker.starting import StartInterrupted, StartRefused
from penstock.cli import exit_codes
from penstock.cli.node_directories import NODE_MARK, nodes_in
from penstock.cli.ports import is_taken
from penstock.cli.server_options import DATA_DEFAULT, LISTEN_DEFAULT, PORT_DEFAULT, LogFormat, ServerOptions, UpOptions
from penstock.config import BrokerConfig, ConfigError, parse_assignment, parse_host_port, parse_properties
from penstock.config.broker import mistyped_properties
from penstock.config.local_cluster import NODE_SETTINGS, quorum_size
from penstock.runtime import DirectoryInUse
from penstock.runtime.eventlog import EventLog, StreamEventLog
from penstock.runtime.exits import EXIT_CONFIG, EXIT_IN_USE, EXIT_OK, EXIT_STORAGE, EXIT_UNAVAILABLE
from penstock.runtime.production import ProductionRuntime, run
from penstock.wire.valid import PORT_MAX


class _Refused(Exception):
    """The process ends before it serves: `str()` says why and what to do."""

    def __init__(self, message: str, code: int = EXIT_CONFIG) -> None:
        super().__init__(message)
        self.code = code


def serve(options: ServerOptions, *, is_local: bool = False) -> int:
    """Runs one broker until it is stopped. `is_local` is for `penstock up`: it also says what to try next."""
    try:
        return _serve(options, is_local)
    except _Refused as refusal:
        refuse(str(refusal), refusal.code, json=options.json)
        return refusal.code


def up(options: UpOptions) -> int:
    """Runs one broker, or a local cluster of several, and a monitor if it is wanted."""
    try:
        with ExitStack() as stack:
            if options.monitor:
                _watch(options, stack)
            return _up(options)
    except _Refused as refusal:
        refuse(str(refusal), refusal.code, json=options.json)
        return refusal.code


def _watch(options: UpOptions, stack: ExitStack) -> None:
    from penstock.cli.fleet import HOST, METRICS_ABOVE, MONITOR_ABOVE
    from penstock.monitor.process import MonitorProcess

    port = PORT_DEFAULT if options.port is None else options.port
    if not 1 <= port <= PORT_MAX - MONITOR_ABOVE:
        raise _Refused(
            f"--monitor: choose a --port from 1 to {PORT_MAX - MONITOR_ABOVE}; figures are served above it",
            exit_codes.USAGE,
        )
    if is_taken(HOST, port):
        # The broker will say so; a monitor of somebody else's cluster is not wanted.
        return
    if options.brokers > 1:
        scrapes = {node: f"{HOST}:{port + METRICS_ABOVE + node - 1}" for node in range(1, options.brokers + 1)}
    else:
        scrapes = {1: options.metrics} if options.metrics is not None else {}
    stack.enter_context(MonitorProcess(f"{HOST}:{port}", scrapes=scrapes, metrics=f"{HOST}:{port + MONITOR_ABOVE}"))


def _up(options: UpOptions) -> int:
    if options.brokers > 1 or options.secure:
        return _up_many(options)
    return _serve(
        ServerOptions(
            config=options.config,
            set=options.set,
            listen=None if options.port is None else f"127.0.0.1:{options.port}",
            data=options.data,
            metrics=options.metrics,
            json=options.json,
        ),
        True,
    )


def _up_many(options: UpOptions) -> int:
    from penstock.cli.fleet import port_max, ports_in_use, properties, run_fleet

    port = PORT_DEFAULT if options.port is None else options.port
    most = port_max(options.brokers)
    if not 1 <= port <= most:
        raise _Refused(
            f"--port {port}: choose a number from 1 to {most}, because the nodes need more ports above it",
            exit_codes.USAGE,
        )
    if options.metrics is not None:
        raise _Refused("--metrics: with --brokers each node has its own port, from P+200 on", exit_codes.USAGE)
    data = Path(options.data or DATA_DEFAULT)
    _refuse_other_layout(data, options.brokers)
    try:
        common = given_settings(options.config, options.set)
        own = [name for name in NODE_SETTINGS if name in common]
        if own:
            raise _Refused(
                f"{', '.join(own)}: with --brokers every node gets its own. Take it out of --config and --set, or "
                "start the nodes one by one with `penstock server`"
            )
        security = _secure(options, data, port, common) if options.secure else None
        BrokerConfig.resolve({**properties(1, options.brokers, port, security=security), **common})
    except (ConfigError, ValueError) as error:
        raise _Refused(str(error)) from None
    if taken := ports_in_use(options.brokers, port):
        uses = ", ".join(f"{number} ({use})" for number, use in taken.items())
        raise _Refused(
            f"in use already: port {uses}. Is another cluster running? Choose other ports with --port P",
            EXIT_UNAVAILABLE,
        )
    return run_fleet(
        options.brokers,
        port,
        data,
        restart=options.restart,
        common=common,
        json=options.json,
        security=security,
    )


def _secure(options: UpOptions, data: Path, port: int, common: dict[str, str]) -> str:
    """Create certificates and the administrator, if they are not there yet. Returns the certificates' directory."""
    from penstock.cli import security_files as files
    from penstock.cli.fleet import HOST, properties
    from penstock.config.local_security import CLIENT_FILE

    security = data / "security"
    if nodes_in(data) and not security.exists():
        raise _Refused(f"{data} holds a cluster that is not secured: use another directory with --data DIR")
    files.create_certificates(security, [HOST, "localhost"], options.brokers)
    bootstrap = ",".join(f"{HOST}:{port + index}" for index in range(options.brokers))
    password = files.create_client(data / CLIENT_FILE, security, bootstrap)
    where = str(security.resolve())
    if not nodes_in(data):
        own = {**properties(1, options.brokers, port, security=where), **common, "log.dirs": str(data / "node-1")}
        try:
            files.format_data(BrokerConfig.resolve(own), files.admin_credentials(password))
        except files.NotFormatted as error:
            raise _Refused(str(error)) from None
    return where


def _serve(options: ServerOptions, is_local: bool) -> int:
    started_s = time.monotonic()
    try:
        config = configuration(options)
        metrics = None if options.metrics is None else parse_host_port(options.metrics)
    except (ConfigError, ValueError) as error:
        raise _Refused(str(error)) from None
    json_lines = options.json or options.log_format is LogFormat.JSON
    events = StreamEventLog(lambda: time.time_ns() // 1_000_000, json_lines=json_lines)
    for warning in config.warnings:
        events.warning("config", message=warning)
    root = Path(config.log_dir)
    if is_local:
        _refuse_other_layout(root, 1)
    elif nodes := nodes_in(root):
        raise _Refused(
            f"{root} holds {_count_nodes(nodes)} of a cluster, and no node itself. Name one of them, as in "
            f"--data {next(iter(nodes.values()))}, or start all of them with `penstock up --brokers {max(nodes)}`"
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "no permission to read and write it")
    except OSError as error:
        raise _Refused(
            f"the data directory {root} cannot be used: {error.strerror}. Name another with --data DIR"
        ) from None

    async def broker(runtime: ProductionRuntime) -> int:
        return await serve_until_stopped(
            runtime, config, events, metrics, root, started_s, hints=is_local and not options.json, json=options.json
        )

    try:
        return run(broker, root=str(root), io_threads=config.num_io_threads, events=events)
    except DirectoryInUse:
        raise _Refused(
            f"the data directory {root} is in use by another broker (its process id is in {root / 'penstock.pid'}): "
            "stop that one first, or name another directory with --data DIR",
            EXIT_IN_USE,
        ) from None
    except StartRefused as error:
        raise _Refused(str(error)) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
            raise _Refused(
                f"the data directory {root} cannot be written: {error.strerror}. Make room or look at the disk, "
                "then start again",
                EXIT_STORAGE,
            ) from None
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        if metrics is not None and is_taken(*metrics):
            remedy = "Choose another address for metrics with --metrics HOST:PORT"
        else:
            choice = "port with --port P" if is_local else "address with --listen HOST:PORT"
            remedy = f"Is another broker running? Choose another {choice}"
        raise _Refused(f"cannot listen: {error.strerror or error}. {remedy}", EXIT_UNAVAILABLE) from None


def given_settings(config_path: str | None, settings: Iterable[str]) -> dict[str, str]:
    """The properties of a file and of `--set`, which is stronger. A mistyped name is a ConfigError.

    Kafka ignores names that it does not know, and so do we, with a warning. But a name that is nearly one of ours is a
    mistake: the broker would run without the setting that its operator wanted.
    """
    given: dict[str, str] = {}
    if config_path is not None:
        try:
            given = parse_properties(Path(config_path).read_text(encoding="utf-8"))
        except OSError as error:
            reason = f"the file {config_path}, given with --config, cannot be read: {error.strerror}"
            raise ConfigError([reason]) from None
        except UnicodeDecodeError:
            raise ConfigError([f"the file {config_path}, given with --config, is not text in UTF-8"]) from None
    given.update(map(parse_assignment, settings))
    if mistyped := mistyped_properties(given):
        raise ConfigError(
            [f"{name} is not a property of a broker; did you mean {meant}?" for name, meant in mistyped.items()]
        )
    return given


def configuration(options: ServerOptions) -> BrokerConfig:
    given = given_settings(options.config, options.set)
    static: dict[str, str] = {"node.id": "1", "log.dirs": DATA_DEFAULT}
    if "log.dir" in given:
        del static["log.dirs"]
    if "broker.id" in given:
        del static["node.id"]
    static.update(given)
    if options.listen is not None or "listeners" not in static:
        host, port = parse_host_port(options.listen or LISTEN_DEFAULT)
        written = f"[{host}]" if ":" in host else host
        controllers = [
            entry for entry in static.get("listeners", "").split(",") if entry.strip().upper().startswith("CONTROLLER:")
        ]
        static["listeners"] = ",".join([f"PLAINTEXT://{written}:{port}", *controllers])
    if options.data is not None:
        static.pop("log.dir", None)
        static["log.dirs"] = options.data
    if options.node_id is not None:
        static["node.id"] = str(options.node_id)
    return BrokerConfig.resolve(static)


def _refuse_other_layout(data: Path, brokers: int) -> None:
    """Refuses a directory that was written by a cluster of another size: its topics would seem to be lost."""
    nodes = nodes_in(data)
    if nodes and (brokers < max(nodes) or quorum_size(brokers) != quorum_size(max(nodes))):
        raise _Refused(
            f"{data} holds {_count_nodes(nodes)}: use --brokers {max(nodes)}, or another directory with --data DIR"
        )
    if brokers > 1 and not nodes and (data / NODE_MARK).exists():
        raise _Refused(f"{data} holds a single node: leave out --brokers, or use another directory with --data DIR")


def _count_nodes(nodes: Collection[int]) -> str:
    return "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"


async def serve_until_stopped(
    runtime: ProductionRuntime,
    config: BrokerConfig,
    events: EventLog,
    metrics: tuple[str, int] | None,
    root: Path,
    started_s: float,
    *,
    hints: bool,
    json: bool,
) -> int:
    stopping = runtime.future()
    runtime.on_stop(partial(stopping.set_result, None))
    broker = Broker(runtime, config, events, metrics_address=metrics)
    try:
        await broker.start()
    except StartInterrupted:
        return EXIT_OK
    pid_path = root / "penstock.pid"
    pid_path.write_text(f"{os.getpid()}\n", encoding="ascii")
    runtime.settle()
    host, port = broker.address
    took_ms = (time.monotonic() - started_s) * 1000
    if json:
        import json as writer

        ready = {"address": f"{host}:{port}", "node": config.node_id, "version": __version__, "data": str(root)}
        print(writer.dumps({"ready": {**ready, "started_ms": round(took_ms)}}), flush=True)
    else:
        node = f"node {config.node_id}, version {__version__}"
        print(f"penstock: ready on {host}:{port} ({node}, started in {took_ms:.0f} ms)", flush=True)
    if hints:
        print(next_steps(host, port, root, broker.metrics_port), flush=True)
    await stopping
    await broker.stop()
    pid_path.unlink(missing_ok=True)
    return EXIT_OK


def next_steps(host: str, port: int, root: Path, metrics_port: int | None) -> str:
    command = Path(sys.argv[0])
    name = str(command) if command.name == "penstock" and command.parent.name == "bin" else "penstock"
    if os.path.isabs(name):
        relative = os.path.relpath(name)
        name = relative if not relative.startswith("..") else name
    where = "" if port == 9092 else f" --bootstrap-server {host}:{port}"
    lines = [
        "",
        "  Any Kafka client can use it now. From another terminal:",
        "",
        f"    {name} topics create hello --partitions 3{where}",
        f"    echo 'first message' | {name} produce hello{where}",
        f"    {name} consume hello --from-beginning{where}",
        "",
        f"  Data is kept in {root}/. Ctrl-C stops the broker.",
    ]
    if metrics_port is not None:
        lines.insert(-1, f"  Metrics: http://{host}:{metrics_port}/metrics")
    return "\n".join(lines)


def refuse(message: str, code: int, *, json: bool) -> None:
    if json:
        import json as writer

        print(writer.dumps({"error": {"message": message, "code": code, "hint": None}}), file=sys.stderr)
    else:
        print(f"penstock: {message}", file=sys.stderr)
