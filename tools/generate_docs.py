# ruff: noqa: E501 (pages are written here as they read)
"""Writes the reference pages that come from the code, so that they cannot tell anything else than the code does.

    python tools/generate_docs.py            writes them
    python tools/generate_docs.py --check    fails if a page is not what it would write

- `docs/configuration.md` from the tables of `penstock.config`
- `docs/compatibility.md` from the table of served APIs in `penstock.wire.apis`
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from penstock.config import NOT_YET, TOPIC, WITHOUT_MEANING, Definition, Kind, UpdateMode
from penstock.config.broker_table import SECTIONS, SYNONYM_CHAIN
from penstock.config.definitions import INT32_MAX, INT64_MAX, Value, render
from penstock.config.topic_table import BROKER_NAME

DOCS = Path(__file__).resolve().parents[1] / "docs"
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
    generated = {DOCS / "configuration.md": configuration()}
    if importlib.util.find_spec("penstock.wire.apis") is not None:
        from penstock.wire import apis

        markdown_table: Callable[[], str] | None = getattr(apis, "markdown_table", None)
        if markdown_table is not None:
            generated[DOCS / "compatibility.md"] = compatibility(markdown_table())
    return generated


def configuration() -> str:
    parts = [GENERATED, CONFIGURATION_HEAD, *(_section(title, definitions) for title, definitions in SECTIONS)]
    parts += [TOPICS_HEAD, _topic_table(), NOT_YET_HEAD, _not_yet_table()]
    parts += [WITHOUT_MEANING_HEAD, _without_meaning_table()]
    return "\n\n".join(parts) + "\n"


def compatibility(table: str) -> str:
    return "\n\n".join([GENERATED, COMPATIBILITY_HEAD, table.strip(), _not_served(), COMPATIBILITY_GAPS]) + "\n"


def _not_served() -> str:
    from penstock.wire.apis import SERVED, ApiKey

    missing = ", ".join(key.name.title().replace("_", "") for key in ApiKey if key not in SERVED)
    return f"## Not served yet\n\nA client that asks finds these missing from the table above:\n{missing}."


COMPATIBILITY_GAPS = """## Gaps in what is served

- **Groups**: classic and consumer groups (KIP-848) are served; share and streams groups are not. Clients may not write to
  `__consumer_offsets`, as in Kafka, and no client id is excepted from that. If its partition count is changed, groups move
  to other partitions at once, and leave their offsets behind; in Kafka that happens with the next restart.
- **Transactions**: a transactional id is refused (INVALID_REQUEST), and so are transactional batches. `read_committed` is
  accepted and reads what `read_uncommitted` reads, which is the same while there are no transactions.
- **Clusters**: a node is broker, controller or both. Between nodes the quorum speaks Kafka's Vote, BeginQuorumEpoch,
  EndQuorumEpoch, Fetch and FetchSnapshot, and brokers its BrokerRegistration, BrokerHeartbeat, AlterPartition,
  AllocateProducerIds and Envelope; but a cluster is of Penstock's nodes alone, not mixed with Apache Kafka's. New nodes
  format their directories by themselves: there is no `kafka-storage format`.
- **Compaction**: one log at a time, whatever `log.cleaner.threads` says. A key takes some 160 bytes of
  `log.cleaner.dedupe.buffer.size`, where Kafka needs 24. A log that could not be compacted because the disk was full is
  tried again, where Kafka takes the directory offline.
- **Security and quotas**: no TLS, SASL, ACLs or quotas; keep the listener on loopback or a trusted network.
- **Record formats**: batches of version 2 (Kafka 0.11 and newer) only, as in Kafka 4.
- **Listeners**: as many as wanted, all of them plaintext; clients are told of the brokers' listeners of the name under which
  they came in. A follower's Fetch is taken on `inter.broker.listener.name` alone; what nodes ask each other is in the table of
  the controllers' listeners alone. Where clients and brokers share a listener nothing tells them apart, as there is no
  authentication yet.
- **A topic of exactly 10,000 partitions** in one request is refused (9,999 pass), because the whole request is one
  atomic batch of at most 10,000 records, as in Kafka.

## Clients that are tested

Every commit runs librdkafka (confluent-kafka), kafka-python, aiokafka, kafkajs and kcat (on Debian's older librdkafka)
against a broker process: each produces and consumes with every codec it has, with and without idempotence, and the
stored batches are inspected (`tests/clients`)."""

CONFIGURATION_HEAD = """# Configuration

Penstock takes Kafka's property names, types, limits and defaults, so Kafka's documentation mostly applies. A property
that is set takes effect or is refused when the broker starts; the few that have no meaning here start with a warning
that names what to use instead.

Settings of a broker come from, the strongest first:

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
(`penstock configs alter --topic orders --add retention.ms=3600000`); all change at run time. A topic that does not set
one has the value of the broker property in the last column."""

NOT_YET_HEAD = """## Not served yet

Kafka's default is accepted, because it asks for nothing; any other value is refused with this reason."""

WITHOUT_MEANING_HEAD = """## Without meaning here

Accepted, with a warning that says what to use instead."""

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
    name = BROKER_NAME.get(definition.name)
    if name is None:
        return ""
    return ", ".join(f"`{link}`" for link, _ in SYNONYM_CHAIN.get(name, ((name, 1),)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
