"""`penstock up --brokers N`: several broker processes on this machine, one cluster, one view of their logs.

    node i (from 1)   clients P+i-1   controllers P+100+i-1   metrics P+200+i-1   brokers P+300+i-1   data DIR/node-i

The first one, three or five nodes are the quorum too; the others are brokers only. The supervisor starts the processes,
shows their lines together, says when one of them dies (and restarts it with --restart), and stops them one after
another, so that each can hand over its partitions. It has no state of its own: each node's is in the node's directory.
"""

from __future__ import annotations

import asyncio
import ctypes
import json as json_text
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.ports import is_taken
from penstock.config.local_cluster import NodeAddress, node_settings
from penstock.config.local_security import CLIENT_FILE
from penstock.runtime.exits import EXIT_OK, EXIT_UNAVAILABLE
from penstock.wire.valid import PORT_MAX

HOST = "127.0.0.1"
CONTROLLERS_ABOVE = 100
METRICS_ABOVE = 200
INTERNAL_ABOVE = 300
"""Where brokers reach each other; it came last."""
MONITOR_ABOVE = 400
"""Where the monitor serves its figures, with --monitor."""
READY = ("penstock: ready on ", '{"ready": ')
"""How the line begins with which a node says that it serves: as text, and as JSON."""
REPEATS_SHOWN = 2
"""How many of several lines with the same event are shown; the others are counted."""
FOLD_S = 0.5
"""A run of lines with the same event is over after this pause."""
STOP_TIMEOUT_S = 30.0
RESTART_PAUSE_S = 1.0
RESTART_PAUSE_MAX_S = 30.0
STEADY_S = 60.0
"""A node that ran this long before it died is started again without a long pause."""
LINE_BYTES_MAX = 1 << 20
COLOURS = (36, 33, 32, 35, 34, 31)
PR_SET_PDEATHSIG = 1


@dataclass
class Member:
    """One node and the process that runs it."""

    id: int
    command: list[str]
    process: asyncio.subprocess.Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    started_s: float = 0.0
    deaths: int = 0
    """In a row, without running for long in between."""
    repeats: RepeatFolder = field(default_factory=lambda: RepeatFolder())
    folding: asyncio.TimerHandle | None = None


class RepeatFolder:
    """Shortens runs of lines that tell the same event. Pure.

    A restart changes the in-sync replicas of every partition, which would fill the screen.
    """

    def __init__(self) -> None:
        self._event: str | None = None
        self._seen = 0

    def take(self, line: str) -> list[str]:
        """The lines to show, now that this one has come."""
        found = _EVENT.match(line)
        event = found[1] if found is not None else None
        if event is not None and event == self._event:
            self._seen += 1
            return [line] if self._seen <= REPEATS_SHOWN else []
        shown = [*self.end_run(), line]
        self._event, self._seen = event, 1
        return shown

    def end_run(self) -> list[str]:
        """A line that counts those that were not shown, if any."""
        event, hidden = self._event, self._seen - REPEATS_SHOWN
        self._event, self._seen = None, 0
        return [f"… and {hidden} more: {event}"] if hidden > 0 else []


_EVENT = re.compile(r"\S+ \S+ INFO  (.+?)(?:\s{2,}|\s\w+=|$)")
"""Warnings and errors are never folded."""


def one_host(node_id: int) -> str:
    """All nodes are on this machine."""
    return HOST


def properties(
    node_id: int, brokers: int, port: int, host_of: Callable[[int], str] = one_host, security: str | None = None
) -> dict[str, str]:
    """The settings of a node, in Kafka's words. `security`: the directory of the certificates, if it is secured."""

    def address_of(number: int) -> NodeAddress:
        own = port + number - 1
        return NodeAddress(host_of(number), own, own + INTERNAL_ABOVE, own + CONTROLLERS_ABOVE)

    return node_settings(node_id, brokers, address_of, security)


def ports_in_use(brokers: int, port: int) -> dict[int, str]:
    """The ports that the nodes need but another process uses, with their purpose."""
    uses = {0: "clients", CONTROLLERS_ABOVE: "controller", METRICS_ABOVE: "metrics", INTERNAL_ABOVE: "other brokers"}
    return {
        port + above + node - 1: f"{use} of node {node}"
        for above, use in uses.items()
        for node in range(1, brokers + 1)
        if is_taken(HOST, port + above + node - 1)
    }


def port_max(brokers: int) -> int:
    """The largest port for clients of the first node, so that all others can be had."""
    return PORT_MAX - INTERNAL_ABOVE - brokers + 1


def command(
    node_id: int,
    brokers: int,
    port: int,
    data: Path,
    common: Mapping[str, str],
    *,
    json: bool,
    security: str | None = None,
) -> list[str]:
    """`common`: settings of all nodes, stronger than ours."""
    own = {**properties(node_id, brokers, port, security=security), **common}
    settings = [f"{name}={value}" for name, value in own.items()]
    return [
        sys.executable, "-m", "penstock", "server",
        "--data", str(data / f"node-{node_id}"),
        "--metrics", f"{HOST}:{port + METRICS_ABOVE + node_id - 1}",
        *(["--json"] if json else []),
        *[part for setting in settings for part in ("--set", setting)],
    ]  # fmt: skip


def run_fleet(
    brokers: int,
    port: int,
    data: Path,
    *,
    restart: bool,
    common: Mapping[str, str],
    json: bool,
    security: str | None = None,
) -> int:
    """Runs a cluster until it is stopped; returns the exit code."""
    members = [
        Member(n, command(n, brokers, port, data, common, json=json, security=security)) for n in range(1, brokers + 1)
    ]
    client = None if security is None else data / CLIENT_FILE
    return asyncio.run(Fleet(members, port, data, restart=restart, json=json, client=client).run())


class Fleet:
    """The nodes of one cluster, while they run."""

    def __init__(
        self,
        members: Sequence[Member],
        port: int,
        data: Path,
        *,
        restart: bool,
        json: bool,
        client: Path | None = None,
    ) -> None:
        """`client`: the administrator's settings, if the cluster is secured."""
        self._client = client
        self._json = json
        self._members = members
        self._port = port
        self._data = data
        self._restart = restart
        self._stopping = asyncio.Event()
        self._width = len(f"node-{members[-1].id}")
        self._coloured = sys.stdout.isatty()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        tasks = [asyncio.create_task(self._keep(member)) for member in self._members]
        announcing = asyncio.create_task(self._announce())
        ending = asyncio.gather(*tasks)
        # They end by themselves only when all have died and none is to be started again.
        ending.add_done_callback(lambda _: self._stopping.set())
        await self._stopping.wait()
        gave_up = ending.done()
        announcing.cancel()
        clean = await self._stop_all()
        await ending
        if gave_up:
            self._say("all brokers have ended")
            return EXIT_UNAVAILABLE
        self._say("stopped" if clean else "stopped, but not all of them cleanly")
        return EXIT_OK if clean else EXIT_UNAVAILABLE

    # ---- one node

    async def _keep(self, member: Member) -> None:
        """Run it, and again if it dies and that is wanted."""
        while not self._stopping.is_set():
            await self._run_once(member)
            if self._stopping.is_set() or not self._restart:
                return
            pause_s = min(RESTART_PAUSE_S * 2 ** max(0, member.deaths - 1), RESTART_PAUSE_MAX_S)
            self._say(f"node {member.id} is started again in {pause_s:.0f} s")
            try:
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            except TimeoutError:
                continue

    async def _run_once(self, member: Member) -> None:
        loop = asyncio.get_running_loop()
        member.started_s = loop.time()
        process = member.process = await asyncio.create_subprocess_exec(
            *member.command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LINE_BYTES_MAX,
            start_new_session=True,  # Ctrl-C is for us: we stop them in order
            preexec_fn=_die_with_parent,
        )
        assert process.stdout is not None
        async for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            if line.startswith(READY):
                member.ready.set()
            self._take(member, line)
        self._end_run(member)
        code = await process.wait()
        member.ready.clear()
        member.process = None
        if self._stopping.is_set():
            return
        member.deaths = 1 if loop.time() - member.started_s > STEADY_S else member.deaths + 1
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._say(f"node {member.id} {how}" + ("" if self._restart else "; the others go on without it"))

    # ---- all of them

    async def _announce(self) -> None:
        for member in self._members:
            await member.ready.wait()
        addresses = ",".join(f"{HOST}:{self._port + member.id - 1}" for member in self._members)
        if self._json:
            ready = {"bootstrap_server": addresses, "brokers": len(self._members)}
            self._print_json({"ready": ready if self._client is None else {**ready, "client": str(self._client)}})
            return
        count = len(self._members)
        way = f"--bootstrap-server {addresses}" if self._client is None else f"--command-config {self._client}"
        ready_line = f"{count} brokers are" if count > 1 else "The broker is"
        print(
            f"\n  {ready_line} ready. Any Kafka client can use {'them' if count > 1 else 'it'} now:\n\n"
            f"    penstock topics create hello --partitions 6 {way}\n"
            f"    penstock cluster quorum {way}\n\n"
            f"  Data is kept in {self._data}/node-*, each node's process id in penstock.pid there.\n"
            f"  Metrics: http://{HOST}:{self._port + METRICS_ABOVE}/metrics and the next ports. Ctrl-C stops all.\n",
            flush=True,
        )

    async def _stop_all(self) -> bool:
        """Stop in reverse order, so that the quorum runs until the other nodes have handed their leadership over."""
        clean = True
        for member in reversed(self._members):
            process = member.process
            if process is None or process.returncode is not None:
                continue
            process.terminate()
            try:
                code = await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                self._say(f"node {member.id} did not stop within {STOP_TIMEOUT_S:.0f} s and is killed")
                process.kill()
                code = await process.wait()
            clean = clean and code == EXIT_OK
        return clean

    # ---- what is seen

    def _take(self, member: Member, line: str) -> None:
        if self._json:
            self._print_json({"node": member.id, **_fields(line)})
            return
        if member.folding is not None:
            member.folding.cancel()
        for shown in member.repeats.take(line):
            self._tell(member, shown)
        member.folding = asyncio.get_running_loop().call_later(FOLD_S, self._end_run, member)

    def _end_run(self, member: Member) -> None:
        for line in member.repeats.end_run():
            self._tell(member, line)

    def _tell(self, member: Member, line: str) -> None:
        name = f"node-{member.id}".ljust(self._width)
        if self._coloured:
            name = f"\033[{COLOURS[(member.id - 1) % len(COLOURS)]}m{name}\033[0m"
        print(f"{name} | {line}", flush=True)

    def _say(self, text: str) -> None:
        if self._json:
            self._print_json({"note": text})
        else:
            print(f"penstock: {text}", flush=True)

    def _print_json(self, value: object) -> None:
        print(json_text.dumps(value, ensure_ascii=False), flush=True)


def _fields(line: str) -> dict[str, object]:
    """The JSON object in a line of a node; a line of something else, such as a traceback, as text."""
    try:
        value = json_text.loads(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"text": line}


def _die_with_parent() -> None:
    """In the new process: end when the supervisor does, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
