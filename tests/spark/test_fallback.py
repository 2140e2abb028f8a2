"""Who reads: Penstock's own client, or confluent-kafka where only librdkafka can; and what is said about it."""

from __future__ import annotations

import logging
import subprocess
import uuid
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

from client.secured_kafka import Certificates, SecuredKafka
from penstock.client import UnsupportedSetting
from penstock.spark.backend import PenstockBackend, open_backend, open_reader
from penstock.spark.batch_reader import plan
from penstock.spark.confluent import ConfluentBackend, ConfluentReader
from penstock.spark.fetching import PenstockReader
from penstock.spark.filters import Bounds
from penstock.spark.lookup import Lookup
from penstock.spark.options import SourceOptions, batch_options
from penstock.spark.reading import read_range
from support.apache_kafka import available
from support.records import create_topic, write

STORE_PASSWORD = "store-secret"


@pytest.fixture(scope="module")
def pkcs12(certificates: Certificates) -> dict[str, str]:
    """Options of a job whose key is in a PKCS#12 store, as Java's `keytool` makes them."""
    store = certificates.directory / "client.p12"
    export = ["openssl", "pkcs12", "-export", "-in", str(certificates.client), "-out", str(store)]
    subprocess.run([*export, "-passout", f"pass:{STORE_PASSWORD}"], check=True, capture_output=True, timeout=60)
    return {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": str(store),
        "kafka.ssl.keystore.password": STORE_PASSWORD,
        "kafka.ssl.key.password": STORE_PASSWORD,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(certificates.ca),
    }


def options_of(**given: str) -> SourceOptions:
    return batch_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"} | given)


def test_what_only_librdkafka_can_do_is_read_through_it(
    pkcs12: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.spark")
    options = options_of(**pkcs12, **{"kafka.default.api.timeout.ms": "1000", "kafka.client.rack": "r1"})

    backend, reader = open_backend(options), open_reader(options)
    try:
        assert isinstance(backend, ConfluentBackend)
        assert isinstance(reader, ConfluentReader)
    finally:
        reader.close()
        backend.close()
    assert "reading through confluent-kafka: ssl.keystore.location: PKCS#12" in caplog.text
    with pytest.raises(UnsupportedSetting, match="PKCS#12"):
        open_backend(options_of(**pkcs12, **{"penstock.client": "penstock"}))


def test_what_penstock_can_do_is_not() -> None:
    options = options_of()

    backend, reader = open_backend(options), open_reader(options)

    assert isinstance(backend, PenstockBackend)
    assert isinstance(reader, PenstockReader)


def test_a_misspelt_property_is_ignored_as_in_java_but_not_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {"kafka.isolation.levell": "read_committed", "kafka.zzz": "1", "kafka.session.timeout.ms": "6000"}

    open_backend(options_of(**wrong)).close()

    assert caplog.messages == [
        "kafka.isolation.levell is no property of Kafka's consumers, and is ignored: did you mean "
        "kafka.isolation.level?",
        "kafka.zzz is no property of Kafka's consumers, and is ignored",
    ]


@pytest.mark.long
@pytest.mark.needs_maven
@pytest.mark.timeout(300)
def test_a_key_in_a_pkcs12_store_opens_the_door(
    certificates: Certificates, pkcs12: dict[str, str], tmp_path: Path
) -> None:
    if reason := available():
        pytest.skip(reason)
    with SecuredKafka(certificates) as kafka:
        topic = create_topic(kafka.bootstrap, f"t-{uuid.uuid4().hex[:8]}")
        write(kafka.bootstrap, topic, 10)
        options = options_of(**pkcs12, **{"kafka.bootstrap.servers": kafka.addresses["SSL"], "subscribe": topic})
        lookup = Lookup(options)
        try:
            parts = plan(options, lookup, Bounds())
        finally:
            lookup.close()
        rows = [row for part in parts for batch in read_range(options, part) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(10))
