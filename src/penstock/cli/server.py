"""`penstock server` and `penstock up`: one broker in the foreground.

This module is the engine's front door and imports neither the rest of the command line nor its libraries: a broker
starts in a fraction of a second because of what is not loaded.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from penstock import __version__
from penstock.broker.server import Broker
from penstock.broker.starting import StartInterrupted, StartRefused
from penstock.config import BrokerConfig, ConfigError, parse_assignment, parse_host_port, parse_properties
from penstock.config.local_cluster import NODE_SETTINGS
from penstock.runtime import DirectoryInUse
from penstock.runtime.eventlog import EventLog, StreamEventLog
from penstock.runtime.exits import EXIT_CONFIG, EXIT_IN_USE, EXIT_OK, EXIT_STORAGE, EXIT_UNAVAILABLE
from penstock.runtime.production import ProductionRuntime, run

PORT_DEFAULT = 9092
LISTEN_DEFAULT = f"127.0.0.1:{PORT_DEFAULT}"
DATA_DEFAULT = "data"

EXAMPLES = """\
examples:
  penstock server --data /var/lib/penstock
  penstock server --listen 0.0.0.0:9092 --set advertised.listeners=PLAINTEXT://broker-1:9092
  penstock server --config server.properties --metrics 127.0.0.1:9404
"""


def main(arguments: Sequence[str]) -> int:
    """`penstock server …`"""
    parser = argparse.ArgumentParser(
        prog="penstock server",
        description="Run one broker (a cluster of one) in the foreground. SIGTERM or Ctrl-C stops it cleanly.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="a file in Kafka's server.properties syntax")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a property, stronger than the file; repeatable"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"where clients connect (default {LISTEN_DEFAULT})")
    parser.add_argument("--data", metavar="DIR", help=f"the data directory (default {DATA_DEFAULT})")
    parser.add_argument("--node-id", metavar="N", type=int, help="the node's id in the cluster (default 1)")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics at http://HOST:PORT/metrics")
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="how events are written to standard error"
    )
    options = parser.parse_args(arguments)
    return serve(options, options.config, options.set, hints=False)


def up(arguments: Sequence[str]) -> int:
    """`penstock up …`"""
    parser = argparse.ArgumentParser(
        prog="penstock up",
        description="Start the platform on this machine, in the foreground. Ctrl-C stops it cleanly.",
    )
    parser.add_argument("--config", metavar="FILE", help="a file in Kafka's server.properties syntax, for every node")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a property, stronger than the file; repeatable"
    )
    parser.add_argument("--data", metavar="DIR", help=f"where data is kept (default {DATA_DEFAULT})")
    parser.add_argument(
        "--port", metavar="P", type=int, help=f"where clients connect (default {PORT_DEFAULT}); node i at P+i-1"
    )
    parser.add_argument("--brokers", metavar="N", type=int, default=1, help="how many broker processes (default 1)")
    parser.add_argument("--restart", action="store_true", help="with --brokers: start nodes that die again")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics at http://HOST:PORT/metrics")
    options = parser.parse_args(arguments)
    if options.brokers != 1:
        return up_many(parser, options)
    options.listen = None if options.port is None else f"127.0.0.1:{options.port}"
    options.node_id = None
    options.log_format = "text"
    return serve(options, options.config, options.set, hints=True)


def up_many(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from penstock.cli.fleet import BROKERS_MAX, port_max, properties, run_fleet

    port = PORT_DEFAULT if options.port is None else options.port
    if not 1 < options.brokers <= BROKERS_MAX:
        parser.error(f"--brokers {options.brokers}: a number from 1 to {BROKERS_MAX}")
    most = port_max(options.brokers)
    if not 1 <= port <= most:
        parser.error(f"--port {port}: a number from 1 to {most}, because the nodes need more ports above it")
    if options.metrics is not None:
        parser.error("--metrics: with --brokers each node has its own port, P+200 and those after it")
    try:
        common = given_settings(options.config, options.set)
        own = [name for name in NODE_SETTINGS if name in common]
        if own:
            raise ConfigError(
                [
                    f"{', '.join(own)}: with --brokers every node gets its own. Take it out of --config and --set, or "
                    "start the nodes one by one with `penstock server`"
                ]
            )
        BrokerConfig.resolve({**properties(1, options.brokers, port), **common})
    except (ConfigError, ValueError, OSError) as error:
        refuse(str(error))
        return EXIT_CONFIG
    data = Path(options.data or DATA_DEFAULT)
    return run_fleet(options.brokers, port, data, restart=options.restart, common=common)


def serve(options: argparse.Namespace, config_path: str | None, settings: list[str], *, hints: bool) -> int:
    started_s = time.monotonic()
    try:
        config = configuration(options, config_path, settings)
        metrics = None if options.metrics is None else parse_host_port(options.metrics)
    except (ConfigError, ValueError, OSError) as error:
        refuse(str(error))
        return EXIT_CONFIG
    events = StreamEventLog(lambda: time.time_ns() // 1_000_000, json_lines=options.log_format == "json")
    for warning in config.warnings:
        events.warning("config", message=warning)
    root = Path(config.log_dir)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "no permission to read and write it")
    except OSError as error:
        refuse(f"the data directory {root} cannot be used: {error.strerror}. Name another with --data DIR")
        return EXIT_CONFIG

    async def broker(runtime: ProductionRuntime) -> int:
        return await serve_until_stopped(runtime, config, events, metrics, root, started_s, hints=hints)

    try:
        return run(broker, root=str(root), io_threads=config.num_io_threads, events=events)
    except DirectoryInUse:
        refuse(
            f"the data directory {root} is in use by another broker (its process id is in {root / 'penstock.pid'}): "
            "stop that one first, or name another directory with --data DIR"
        )
        return EXIT_IN_USE
    except StartRefused as error:
        refuse(str(error))
        return EXIT_CONFIG
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
            refuse(
                f"the data directory {root} cannot be written: {error.strerror}. Make room or look at the disk, "
                "then start again"
            )
            return EXIT_STORAGE
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        refuse(
            f"cannot listen: {error.strerror or error}. Is another broker running? "
            f"Choose another address with {'--port P' if hints else '--listen HOST:PORT'}"
        )
        return EXIT_UNAVAILABLE


def given_settings(config_path: str | None, settings: list[str]) -> dict[str, str]:
    """What a file and `--set` say; the latter is stronger."""
    given = {} if config_path is None else parse_properties(Path(config_path).read_text(encoding="utf-8"))
    return {**given, **dict(map(parse_assignment, settings))}


def configuration(options: argparse.Namespace, config_path: str | None, settings: list[str]) -> BrokerConfig:
    given = given_settings(config_path, settings)
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


async def serve_until_stopped(
    runtime: ProductionRuntime,
    config: BrokerConfig,
    events: EventLog,
    metrics: tuple[str, int] | None,
    root: Path,
    started_s: float,
    *,
    hints: bool,
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


def refuse(message: str) -> None:
    print(f"penstock: {message}", file=sys.stderr)
