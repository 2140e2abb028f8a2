"""Hosts, ports, names and ids from outside: what is let in."""

from __future__ import annotations

import pytest

from penstock.wire import valid
from penstock.wire.errors import ErrorCode, KafkaError

HOSTILE_HOSTS = [
    "",
    "a" * 64,
    "a." * 128 + "a",
    "a..b",
    ".a",
    "a b",
    "a\0b",
    "a\nb",
    "a\x1b[2J",
    "-a",
    "a-",
    "a/b",
    "a%b",
    "../a",
    "host:9092",
    "::g",
    "[::1]",
    "\u00fc" * 60,
    "\ud800",
    "a\u2028b",
    "\u0660" + "a" * 62 + "\u05d0",
]


@pytest.mark.parametrize(
    "host",
    ["a", "localhost", "node-1", "node_1.zone.example", "example.com.", "127.0.0.1", "0.0.0.0", "::1", "fe80::1%eth0",
     "a" * 63, "b\u00fccher.example", "1", ".".join(["a" * 49] * 5)],
)  # fmt: skip
def test_hosts_that_a_resolver_can_look_up_are_let_in(host: str) -> None:
    valid.check_host(host)
    host.encode("idna")


@pytest.mark.parametrize("host", HOSTILE_HOSTS)
def test_other_hosts_are_refused_with_a_reason_that_prints(host: str) -> None:
    with pytest.raises(KafkaError) as refused:
        valid.check_host(host)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert "is not a host name or address: " in refused.value.message
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 400


@pytest.mark.parametrize("port", [-(2**31), -1, 0, 65_536, 2**31 - 1])
def test_a_port_that_nobody_can_listen_on_is_refused(port: int) -> None:
    with pytest.raises(KafkaError, match="ports are 1 to 65535"):
        valid.check_port(port)


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "x" * 101, "../x", "\u00e9"])
def test_names_and_cluster_ids_that_would_not_survive_in_a_file_are_refused(name: str) -> None:
    for check in (valid.check_listener_name, valid.check_cluster_id):
        with pytest.raises(KafkaError):
            check(name)


def test_usual_endpoints_and_ids_are_let_in() -> None:
    valid.check_endpoint("SASL_SSL-2", "broker-1.example", 9092)
    valid.check_cluster_id("MkU3OEVBNTcwNTJENDM2Qg")
    valid.check_node_id(0)
    valid.check_directory_id(b"\x01" * 16)
    for directory_id in (bytes(16), bytes(15) + b"\x02"):
        with pytest.raises(KafkaError):
            valid.check_directory_id(directory_id)
    with pytest.raises(KafkaError):
        valid.check_node_id(-1)
