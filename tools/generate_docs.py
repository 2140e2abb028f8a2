# ruff: noqa: E501 (pages are written here as they read)
"""Writes the reference pages that come from the code, so that they cannot tell anything else than the code does.

    python tools/generate_docs.py            writes them
    python tools/generate_docs.py --check    fails if a page is not what it would write

- `docs/reference/configuration.md` from the tables of `penstock.config`
- `docs/reference/compatibility.md` from the table of served APIs in `penstock.wire.apis`
- the table of packages in `CONTRIBUTING.md` from `tools/architecture.py`
- the list in `docs/decisions/README.md` from the decisions beside it
- `docs/reference/planning.md` from the rules and values of `penstock.planning`
- the counts at the top of `docs/status.md` from its rows
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import architecture

from penstock.config import INERT, NOT_YET, TOPIC, WITHOUT_MEANING, Definition, Kind, UpdateMode
from penstock.config.broker_table import BROKER, SECTIONS, SYNONYM_CHAIN
from penstock.config.definitions import INT32_MAX, INT64_MAX, Value, render
from penstock.planning import tables as planning_tables
from penstock.planning.catalogue import Rule
from penstock.planning.partitions import CLASSES as PARTITION_CLASSES
from penstock.planning.presets import PRESETS
from penstock.planning.rules import SUBJECTS
from penstock.planning.spec import TABLES as SPEC_TABLES
from penstock.planning.spec import Entry as SpecEntry
from penstock.planning.tradeoffs import CONFLICTS, TRADE_OFFS
from penstock.planning.values import VALUES

DOCS = Path(__file__).resolve().parents[1] / "docs"
CONTRIBUTING = DOCS.parent / "CONTRIBUTING.md"
STATUS = DOCS / "status.md"
GENERATED = "<!-- Written by tools/generate_docs.py; change the tables in the code and run it again. -->"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the reference pages that come from the code.")
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    arguments = parser.parse_args()
    stale = 0
    for path, text in pages().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            stale += 1
            print(f"{path.relative_to(DOCS.parent)} is out of date: run tools/generate_docs.py", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")
    return 1 if stale else 0


def pages() -> dict[Path, str]:
    """Each generated page with its text."""
    generated = {
        DOCS / "reference" / "configuration.md": configuration(),
        CONTRIBUTING: contributing(),
        DOCS / "decisions" / "README.md": decisions(),
        DOCS / "reference" / "planning.md": planning(),
        STATUS: status(),
    }
    if importlib.util.find_spec("penstock.wire.apis") is not None:
        from penstock.wire import apis

        markdown_table: Callable[[], str] | None = getattr(apis, "markdown_table", None)
        if markdown_table is not None:
            generated[DOCS / "reference" / "compatibility.md"] = compatibility(markdown_table())
    return generated


def contributing() -> str:
    """The page as it is, with the table of packages written anew."""
    head, rest = CONTRIBUTING.read_text(encoding="utf-8").split("<!-- packages -->")
    _, tail = rest.split("<!-- /packages -->")
    return f"{head}<!-- packages -->\n{architecture.markdown()}\n<!-- /packages -->{tail}"


def decisions() -> str:
    rows = []
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        title, date = re.match(r"# (.*)\n\n(\d{4}-\d\d-\d\d)\n", path.read_text(encoding="utf-8")).groups()  # type: ignore[union-attr]
        number, _, name = title.partition(". ")
        assert int(number) == int(path.name[:4]), f"{path.name} is headed as decision {number}"
        rows.append(f"| [{number}]({path.name}) | {name} | {date} |")
    return DECISIONS_HEAD + "\n".join(rows) + "\n"


def status() -> str:
    """The page as it is, with its rows counted anew."""
    page = STATUS.read_text(encoding="utf-8")
    head, rest = page.split("<!-- counts -->")
    _, tail = rest.split("<!-- /counts -->")
    states = [state for _, state in status_rows(tail)]
    kinds = [judged(state) for state in states]
    rows = "\n".join(f"| {kind} | {kinds.count(kind)} |" for kind in STATE_KINDS)
    counts = f"| state | rows |\n|---|---:|\n{rows}\n| **all** | **{len(kinds)}** |"
    return f"{head}<!-- counts -->\n{counts}\n<!-- /counts -->{tail}"


def status_rows(page: str) -> list[tuple[str, str]]:
    """The id and the state of each row of the specification."""
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| [A-Z]+\d+ \|", line)]
    return [(row[0], row[2].strip(" |")) for row in cells]


STATE_KINDS = ("works", "works in part", "not yet")


def judged(state: str) -> str:
    """The kind of a state. A state with a restriction, such as "works for groups", counts as "works in part"."""
    if state in ("works", "measured"):
        return "works"
    return "not yet" if state == "not yet" else "works in part"


DECISIONS_HEAD = """# Decisions

Where the design departs from Kafka, from our first plan or from the obvious, and why. One file per decision, in the order in
which they were taken; a decision that is replaced stays here and names its successor.

| no. | decision | date |
|---|---|---|
"""


def configuration() -> str:
    parts = [GENERATED, CONFIGURATION_HEAD, *(_section(one.title, one.definitions.values()) for one in SECTIONS)]
    parts += [TOPICS_HEAD, _topic_table(), NOT_YET_HEAD, _not_yet_table()]
    parts += [WITHOUT_MEANING_HEAD, _without_meaning_table()]
    parts += [INERT_HEAD, _inert_table()]
    return "\n\n".join(parts) + "\n"


def planning() -> str:
    parts = [GENERATED, PLANNING_HEAD, SPEC_HEAD, *_spec_tables(), RULES_HEAD]
    for subject, rules in SUBJECTS.items():
        parts += [f"### {subject}", *(_rule(rule) for rule in rules)]
    parts += [
        PRESETS_HEAD,
        *_presets(),
        TABLES_HEAD,
        *_planning_tables(),
        CONFLICTS_HEAD,
        _table(("subject", "one says", "the other says"), CONFLICTS),
    ]
    rows = [(f"`{one.name}`", one.shown, one.unit, one.source, one.text) for one in VALUES]
    parts += [VALUES_HEAD, _table(("name", "value", "unit", "source", "what it is"), rows)]
    return "\n\n".join(parts) + "\n"


def _rule(rule: Rule) -> str:
    lines = [f"**{rule.name}** ({rule.source})", f"    {rule.formula}", rule.text]
    if rule.inputs:
        lines.append("Inputs: " + ", ".join(f"`{name}` ({unit})" for name, unit in rule.inputs) + ".")
    if rule.slip:
        lines.append(f"*Where the document slips*: {rule.slip}")
    if rule.values:
        lines.append("Values: " + ", ".join(f"`{name}`" for name in rule.values) + ".")
    return "\n\n".join(lines)


def _presets() -> Iterator[str]:
    for one in PRESETS:
        yield f"**{one.name}** ({one.source}). {one.purpose}"
        rows = [("topic", "replication factor", str(one.replication_factor), "")]
        for kind, settings in (("topic", one.topic), ("producer", one.producer), ("consumer", one.consumer)):
            rows += [(kind, f"`{setting.name}`", f"`{setting.value}`", setting.why) for setting in settings]
        yield _table(("of", "setting", "value", "why"), rows)


def _spec_tables() -> Iterator[str]:
    for name, entries in SPEC_TABLES.items():
        yield f"**`[[{name}]]`**" if name == "topics" else f"**`[{name}]`**"
        rows = [(f"`{key}`", one.unit, _spec_default(one), one.text) for key, one in entries.items()]
        yield _table(("entry", "unit", "default", "what it is"), rows)


def _spec_default(entry: SpecEntry) -> str:
    if entry.optional:
        return "not set"
    return "required" if entry.default is None else str(entry.default).lower()


def _planning_tables() -> Iterator[str]:
    yield "**Partition classes** (002)"
    yield _table(
        ("class", "from MB/s", "start with", "grow to", "add at a time"),
        [
            (one.name, f"{one.from_mb_s:g}", str(one.start), str(one.maximum), str(one.increment))
            for one in PARTITION_CLASSES
        ],
    )
    yield "**Milestones** (004)"
    yield _table(
        ("scale", "from MB/s", "brokers", "partitions per topic"),
        [(one.name, f"{one.from_mb_s:g}", one.brokers, one.partitions) for one in planning_tables.MILESTONES],
    )
    yield "**Schema registry** (002)"
    yield _table(
        ("from schemas", "instances", "memory each", "cores each"),
        [
            (f"{one.from_schemas:,}", str(one.instances), f"{one.memory_gb} GB", str(one.cores))
            for one in planning_tables.REGISTRY_SIZES
        ],
    )
    yield "**Replication factor** (000)"
    yield _table(
        ("copies", "data survives the loss of", "for", "against"),
        [
            (str(one.factor), f"{one.data_survives} brokers", one.advantages, one.drawbacks)
            for one in planning_tables.REPLICATION_FACTORS
        ],
    )
    yield "**Sizes of a broker** (002; 001's maximum beside it)"
    yield _table(
        ("resource", "unit", "start", "increment", "maximum", "001"),
        [
            (
                one.resource,
                one.unit,
                *(f"{size:,g}" for size in (one.start, one.increment, one.maximum, one.maximum_large)),
            )
            for one in planning_tables.SIZES
        ],
    )
    yield "**Metrics of capacity** (002)"
    yield _table(("metric", "measured as", "scale when"), planning_tables.CAPACITY_METRICS)
    yield "**Trade-offs** (003)"
    yield _table(("between", "priority", "settings"), TRADE_OFFS)


def compatibility(table: str) -> str:
    return (
        "\n\n".join([GENERATED, COMPATIBILITY_HEAD, table.strip(), _not_served(), FEATURES, COMPATIBILITY_GAPS]) + "\n"
    )


def _not_served() -> str:
    from penstock.wire.apis import BETWEEN_NODES_IN_KAFKA, OF_CONTROLLERS, SERVED, ApiKey, api_name

    between_nodes = set(OF_CONTROLLERS) | BETWEEN_NODES_IN_KAFKA
    missing = ", ".join(api_name(key) for key in ApiKey if key not in SERVED and key not in between_nodes)
    return NOT_SERVED_HEAD + f"\n{missing}."


NOT_SERVED_HEAD = """## Not served yet

These are missing from the table on purpose: a client that found one of them would begin to use transactions, share
groups, streams groups or telemetry, and fail later. Kafka's clients and tools say so themselves: `The node does not
support SHARE_GROUP_DESCRIBE`. A request for an API or a version that is not in the table closes the connection, as in
Kafka, and the log says which it was (`connection closed`, at most one line per second). (Kafka does not list the two
APIs of telemetry either, unless a plugin takes the metrics.)
"""

FEATURES = """## Features

`kafka-features describe` shows these, and the level that is in force lies within the supported range:

| feature | supported | in force | |
|---|---|---|---|
| `metadata.version` | 25 (4.0-IV3) | 25 | the form of the records of the metadata log |
| `kraft.version` | 1 | 1 | voters in the log, with directory ids (KIP-853); in every cluster |
| `group.version` | 1 | 1 | the consumer protocol (KIP-848); in every cluster, as every release has served it |
| `eligible.leader.replicas.version` | 0–1 | 1 unless lowered | KIP-966 |

An upgrade to a level that is in force succeeds and changes nothing; any other level is refused with the range that is
supported. `transaction.version`, `share.version` and `streams.version` are not there, which means level 0: `kafka-features
upgrade --release-version` is refused as a whole because of the first, so name single features."""

COMPATIBILITY_GAPS = """## Gaps in what is served

- **Groups**: classic and consumer groups (KIP-848) are served; share and streams groups are not. Clients may not write to
  `__consumer_offsets`, as in Kafka, and no client id is excepted from that. If its partition count is changed, groups move
  to other partitions at once, and leave their offsets behind; in Kafka that happens with the next restart.
- **Transactions**: a transactional id is refused (INVALID_REQUEST), also by FindCoordinator. So the Java producer fails at once,
  librdkafka asks again until `init_transactions` times out, and `kafka-transactions describe` says that FindCoordinator
  failed; the broker's log has the reason (`coordinator refused`). Transactional batches are refused, too. `read_committed` is
  accepted and reads what `read_uncommitted` reads, which is the same while there are no transactions.
- **Clusters**: a node is broker, controller or both. Between nodes the quorum speaks Kafka's Vote, BeginQuorumEpoch,
  EndQuorumEpoch, Fetch and FetchSnapshot, and brokers its BrokerRegistration, BrokerHeartbeat, AlterPartition,
  AllocateProducerIds and Envelope; but a cluster is of Penstock's nodes alone, not mixed with Apache Kafka's. New nodes
  format their directories by themselves: there is no `kafka-storage format`.
- **Compaction**: one log at a time, whatever `log.cleaner.threads` says. A key takes some 160 bytes of
  `log.cleaner.dedupe.buffer.size`, where Kafka needs 24. A log that could not be compacted because the disk was full is
  tried again, where Kafka takes the directory offline.
- **Access control**: ACLs by the rules of Kafka's StandardAuthorizer, the only authoriser; other classes are refused. Hosts may
  also be CIDR ranges, and a host that is neither an address nor a range is refused, where Kafka stores it. Without an
  authoriser everyone is authorised for everything, which is what clients are told when they ask for authorised operations
  (KIP-430).
- **Settings**: a broker logger is an event of the log (`connection.closed`) or `root`, not a class. A broker property that
  Kafka does not know is refused at run time, where Kafka keeps it for plug-ins, because it is most likely misspelt.
- **Checks of records**: every kind of broken batch that Kafka refuses is refused, always with INVALID_RECORD; Kafka answers
  UNKNOWN_SERVER_ERROR where its codec raises. Also refused, and taken by Kafka: offset deltas of an uncompressed batch that
  are not 0, 1, 2 …, negative sizes other than -1, numbers beyond 32 bits. A request whose batches decompress to more
  than `penstock.decompression.request.bytes.max` is refused with MESSAGE_TOO_LARGE; Kafka has no such limit.
- **Record formats**: batches of version 2 (Kafka 0.11 and newer) only, as in Kafka 4.
- **Listeners**: as many as wanted, all of them plaintext; clients are told of the brokers' listeners of the name under which
  they came in. A follower's Fetch is taken on `inter.broker.listener.name` alone; what nodes ask each other is in the table of
  the controllers' listeners alone. Where clients and brokers share a listener nothing tells them apart, as there is no
  authentication yet.
- **A topic of exactly 10,000 partitions** in one request is refused (9,999 pass), because the whole request is one
  atomic batch of at most 10,000 records, as in Kafka.

## How long clients wait

When a node stands still or is cut off, others take over after `broker.session.timeout.ms` (9 s). A client that waits for an answer
from that node does not hear of it: nobody can answer in its name, and how long it waits is the client's own setting. Measured with
three brokers, a coordinator stopped (SIGSTOP) for 100 s, one member for each group, `commit()` after every `poll()`, and
default settings:

| client | protocol | longest time without a commit | why |
|---|---|---:|---|
| librdkafka 2.16 | classic | 46.2 s | a request to the coordinator may take `session.timeout.ms` (45 s) |
| librdkafka 2.16 | consumer | 10.7 s | it looks for another coordinator when the next heartbeat is due |
| Java 4.3 | classic | 30.7 s | `request.timeout.ms` (30 s) |
| Java 4.3 | consumer | 30.3 s | the same |

A coordinator that runs and is only cut off from the other nodes sends its members away itself: with any of the four they commit
again after 9 s. Who needs to be faster with librdkafka's classic groups lowers `session.timeout.ms`; with Java,
`request.timeout.ms`. The same holds for producers: a request to a leader that stands still takes `request.timeout.ms`
(30 s), or `socket.timeout.ms` (60 s in librdkafka) if that is shorter; `penstock chaos` sets 4 s and 5 s.
What idempotent producers promise with each client is in [client.md](client.md#producers).

**A synchronous commit of librdkafka** blocks its thread until it is answered or given up, while heartbeats go on: the member stays in its
group and reads nothing. How long that takes depends on the answer (2.16, both protocols, measured through a proxy that gives one answer
all the time; `tests/clients/test_commit_patience.py` has the first row):

| answer | attempts | `commit()` raises after |
|---|---:|---:|
| none | 3 | 3 × `socket.timeout.ms`: **three minutes** by default |
| NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or the connection is closed | 6 | 3 to 5 s |
| COORDINATOR_LOAD_IN_PROGRESS, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS | 3 | 0.3 s |
| STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID | 1 | at once |

So a broker must answer. A coordinator that runs answers every commit and heartbeat within `offsets.commit.timeout.ms` (5 s), whatever
happens to the other nodes (`tests/broker/test_answers_in_time.py`); a request that is not answered within a minute by a bug ends its connection
and is reported (`request not answered`). What is left is a coordinator that stands still. Lower `socket.timeout.ms` where that matters.

**Pauses of producers under several faults at once** are mostly the cluster's: in four runs of `penstock chaos --overlap 3` a probe without any
backlog waited as long as librdkafka in nearly all pauses. Where it did not, librdkafka had a backlog: with 80,000 records under way it
resumed 18 s after the probe (33.3 s beside 15.0 s), in another pause 10 s (20.8 s beside 10.6 s) ([chaos.md](../how-to/chaos.md#the-load-and-the-account)).

## Clients that are tested

Every commit runs librdkafka (confluent-kafka), kafka-python, aiokafka, kafkajs and kcat (on Debian's older librdkafka)
against a broker process: each produces and consumes with every codec it has, with and without idempotence, and the
stored batches are inspected (`tests/clients`)."""

CONFIGURATION_HEAD = """# Configuration

Penstock takes Kafka's property names, types, limits and defaults, so Kafka's documentation mostly applies. A property
that is set either takes effect or prevents the start with a reason; the few properties without meaning here cause a
warning that names the alternative.

A broker takes each setting from the first of these sources that has it:

1. settings made at run time for one broker: `penstock configs alter --broker 1 --add log.retention.ms=3600000`
2. settings made at run time for the cluster's default broker (Kafka's `kafka-configs --entity-default`)
3. the command line: `penstock server --set num.partitions=6`
4. the file: `penstock server --config server.properties`, in Kafka's syntax
5. the defaults below

The column *changes* says when a property may change: *restart* means in the file or on the command line only, *run
time* means with `penstock configs alter` (or any Kafka tool), at once and without a restart.

## Broker properties"""

TOPICS_HEAD = """## Topic properties

Set when a topic is created (`penstock topics create orders --config retention.ms=3600000`) or later
(`penstock configs alter --topic orders --add retention.ms=3600000`); all can be changed at run time. The default of
each is the broker property in the last column."""

NOT_YET_HEAD = """## Not supported yet

Kafka's default is accepted, because it requests nothing; any other value is refused with this reason. Kafka can change
some of these at run time (`ssl.*`, `sasl.jaas.config`, `sasl.enabled.mechanisms`, `listener.name.*`). Penstock refuses
that, because accepting a key or a mechanism would promise protection that does not exist."""

WITHOUT_MEANING_HEAD = """## Without meaning here

These properties are accepted with a warning that names the alternative."""

INERT_HEAD = """## Accepted without effect

Kafka lets operators change these at run time, so runbooks set them. They tune mechanisms that Penstock does not have.
Penstock accepts them in the file and at run time, checks and stores the value, and writes a warning to the log. `kafka-configs
--describe` shows the value, and its documentation field says that it has no effect."""

PLANNING_HEAD = """# Planning

`penstock plan` answers what a cluster needs, what it costs and what limits it. Every answer has its reasons, and names the
rules behind it. The rules come from five documents, cited by number: 000 Scaling Considerations, 001 Scale and Constraints,
002 Event Broker Scaling, 003 Distributed Message Queue System Design, 004 Scaling & Optimization. Where a document's own
arithmetic is wrong, the planner uses the right figure, and this page tells the slip.

```
penstock plan partitions --peak-mb-s 100 --per-partition-mb-s 10 --consumers 5
penstock plan storage --messages-per-s 1000000 --message-bytes 1000 --retention-days 7 --replication-factor 3 --overhead 1.2
penstock plan brokers --ingest-mb-s 500 --network-mb-s 1250 --disk-write-mb-s 500 --zones 3
```

Other questions: `cost`, `tiers`, `right-size`, `consumers`, `registry`, `regions`, `durability`, `milestones`, `scaling`,
`sizes`, `load`, `values`. All take `--json`, and `--values FILE.toml` to put your own thresholds and prices in place of those below:

```toml
[price]
broker = 320          # $ a month
hot_gb = 0.08
[partitions]
minimum = 3
```

Units are decimal: 1 KB = 1,000 bytes. Names of inputs carry their unit. A *peak* is taken as it is; a *current* load gets
headroom. Storage is computed from the average rate, network and brokers from the peak."""

SPEC_HEAD = """## A whole cluster

`penstock plan cluster spec.toml` plans a whole design: partitions per topic, brokers, disks, network and cost, with the constraint
that decides, alternatives, and what a change would do ("twice the retention adds 3 brokers and $1,500 a month").
[`examples/cluster.toml`](../../examples/cluster.toml) is one to start from. `--html FILE` writes a report with charts that loads nothing
from elsewhere. `--from-cluster HOST:PORT` takes topics, sizes and rates from a running cluster, Penstock or Apache Kafka;
`--spec-out FILE` writes them as a spec to complete and keep.

An entry that is unknown, out of bounds or contradicts another is refused with its line. `[values.price]` and other tables under
`[values]` replace values of the catalogue, as `--values` does."""

RULES_HEAD = """## Rules"""

PRESETS_HEAD = """## Presets

`penstock topics create orders --preset events` creates a topic with the settings of a preset; what you give yourself outranks it.
`penstock plan preset events` prints the settings of its clients for Java, librdkafka and `penstock.client`, with the trade-offs
behind them and, with `--jvm`, the flags of Apache Kafka's JVM. `penstock perf produce` and `consume` take `--preset` too."""

TABLES_HEAD = """## Tables"""

CONFLICTS_HEAD = """## Where documents disagree

The planner does not choose silently: it shows both, or asks for the figure."""

VALUES_HEAD = """## Values

Each may be replaced in the file that `--values` names: the word before the dot is the table."""

COMPATIBILITY_HEAD = """# Compatibility

Penstock speaks Apache Kafka's protocol. These are the requests it answers, and in which versions: the oldest that Kafka
4.0 keeps, up to the newest stable one. A client asks for this table itself (ApiVersions) and picks what it knows."""


def _section(title: str, definitions: Iterable[Definition]) -> str:
    rows = [
        (f"`{d.name}`", _kind(d), _default(d), _limits(d), _changes(d), _text(d)) for d in definitions if not d.hidden
    ]
    return f"### {title}\n\n" + _table(("property", "type", "default", "valid", "changes", "what it does"), rows)


def _topic_table() -> str:
    rows = [
        (f"`{d.name}`", _kind(d), _default(d), _limits(d), _text(d), _origin(d)) for d in TOPIC.values() if not d.hidden
    ]
    return _table(("property", "type", "default", "valid", "what it does", "broker property"), rows)


def _not_yet_table() -> str:
    entries = sorted(NOT_YET.items(), key=lambda entry: (entry[1].reason, entry[0]))
    rows = []
    for reason, group in groupby(entries, key=lambda entry: entry[1].reason):
        names = ", ".join(f"`{name}`" for name, _ in group)
        rows.append((_capital(reason), names))
    return _table(("why", "properties"), rows)


def _without_meaning_table() -> str:
    rows = [(f"`{name}`", _capital(why)) for name, why in sorted(WITHOUT_MEANING.items())]
    return _table(("property", "instead"), rows)


def _inert_table() -> str:
    rows = [
        (f"`{d.name}`", _kind(d), _default(d), _limits(d), _capital(d.no_effect))
        for d in sorted(INERT.values(), key=lambda definition: definition.name)
    ]
    return _table(("property", "type", "default", "valid", "why it has no effect"), rows)


def _kind(definition: Definition) -> str:
    return {Kind.INT: "int", Kind.LONG: "long"}.get(definition.kind, definition.kind.name.lower())


def _default(definition: Definition) -> str:
    text = _value(definition.default)
    return f"{text} (Kafka: {definition.kafka_default})" if definition.kafka_default else text


def _value(value: Value) -> str:
    if value is None:
        return "not set"
    if value in (INT32_MAX, INT64_MAX):
        return f"`{value}` (no limit)"
    return f"`{render(value)}`" if render(value) else "empty"


def _limits(definition: Definition) -> str:
    if definition.only_default:
        return f"the default only: {definition.only_default}"
    return definition.validator.text if definition.validator is not None else ""


def _changes(definition: Definition) -> str:
    return "restart" if definition.mode is UpdateMode.READ_ONLY else "run time"


def _text(definition: Definition) -> str:
    if definition.cluster_only:
        return f"{definition.doc} Nothing to do while the cluster has one broker."
    return definition.doc


def _origin(definition: Definition) -> str:
    name = definition.origin
    if name not in BROKER:
        return ""
    return ", ".join(f"`{link}`" for link, _ in SYNONYM_CHAIN.get(name, ((name, 1),)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---" for _ in head], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
