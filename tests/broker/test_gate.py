"""The gate: who has logged in, what a request is charged for, how errors become answers, and how an API is added."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from broker.session import Session, batch, run_session, simulated
from broker.test_authorization import QUICK, Deny, codes_in, prepared, request_of
from penstock.broker.fetch.response import Read, encode
from penstock.broker.fetch.sessions import FetchItem
from penstock.broker.net.access import ANONYMOUS, ListenerInfo, Principal
from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.broker.refusals import refusal
from penstock.sim import broker as sim_broker
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.apis import OF_CONTROLLERS, SERVED, WRITE_TRANSACTIONAL_ID, ApiKey, QuotaClass, ServedApi
from penstock.wire.codec import Limits, decode, to_bytes
from penstock.wire.commits import PLAIN_FROM
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.headers import read_response_header
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.fetch import FetchResponse
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.schema import layout

THROTTLE_MS = 1234
EVERY_VERSION = [
    pytest.param(row, version, id=f"{row.name}-v{version}") for row in SERVED.values() for version in row.versions
]


# -- authentication ----------------------------------------------------------------------------------------------------


class Login:
    """Connections must log in."""

    def principal(self, listener_info: ListenerInfo) -> Principal | None:
        return None

    def frame_bytes_max(self, listener_info: ListenerInfo) -> int:
        return 524_288

    def handshake(self, request: Request, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def secured(self, client: object, subject: str) -> None:
        raise AssertionError("there is no TLS here")

    def authenticate(self, request: Request, body: object) -> Any:
        raise AssertionError("nobody logs in here")


@simulated()
async def test_before_it_has_logged_in_a_client_is_served_only_what_a_login_needs(s: Session) -> None:
    s.node.served.gate.configure(authentication=Login())
    client = await s.connect()
    software = {"client_software_name": "test", "client_software_version": "1"}
    assert (await client.call(ApiVersionsRequest(**software), 4)).error_code == 0
    assert (await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(ConnectionError):
        await client.call(MetadataRequest(topics=None), 12)
    assert (await s.call(MetadataRequest(topics=None), 12)).brokers, "who came before keeps its principal"


@simulated()
async def test_a_connection_is_known_by_its_client_library(s: Session) -> None:
    (connection,) = s.node.served.service._connections.values()
    client = connection.request.client
    assert (client.principal, client.software_name) == (ANONYMOUS, "unknown")
    await s.call(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.0"), 3)
    assert (client.software_name, client.software_version) == ("librdkafka", "2.16.0")
    assert client.host == connection.host


# -- quotas ------------------------------------------------------------------------------------------------------------


class Meter:
    """Counts, and throttles everyone."""

    def __init__(self, throttle_ms: int = THROTTLE_MS) -> None:
        self.throttle_ms = throttle_ms
        self.charged: list[tuple[str, int]] = []
        self.served: list[str] = []

    def enter(self, request: Request) -> None:
        pass

    def charge(self, request: Request, data_bytes: int) -> int:
        self.charged.append((request.row.name, data_bytes))
        return self.throttle_ms

    def took(self, request: Request, busy_ms: float) -> None:
        assert busy_ms >= 0
        self.served.append(request.row.name)

    def fetch_bytes_max(self, request: Request) -> int | None:
        return None

    def mutation_charge(self, request: Request) -> None:
        return None


@pytest.mark.parametrize(("row", "version"), EVERY_VERSION)
@simulated(QUICK)
async def test_every_answer_tells_the_throttle_time(s: Session, row: ServedApi, version: int) -> None:
    topic_id = await prepared(s)
    meter = Meter()
    s.node.served.gate.configure(quotas=meter)
    answer = await s.call(request_of(row, version, topic_id), version)
    has_field = any(field.name == "throttle_time_ms" for field in layout(row.response, version).fields)
    is_charged = row.quota is not QuotaClass.NONE
    if has_field:
        assert answer.throttle_time_ms == (THROTTLE_MS if is_charged else 0)
    # What the controller decides it charges, too; here that is the same node.
    assert [name for name, _ in meter.charged] == [row.name] * (is_charged + row.is_forwarded)
    assert meter.served == [row.name] * is_charged


@simulated(QUICK)
async def test_produce_and_fetch_are_charged_for_their_bytes(s: Session) -> None:
    await prepared(s)
    meter = Meter(0)
    s.node.served.gate.configure(quotas=meter)
    assert (await s.produce("t", b"x" * 1000)).error_code == 0
    assert await s.fetch("t", 0) is not None
    (produced, fetched) = (size for name, size in meter.charged if name in ("Produce", "Fetch"))
    assert 1000 < fetched < produced < 1300


@simulated(QUICK)
async def test_a_commit_that_was_answered_without_the_codec_tells_the_throttle_time(s: Session) -> None:
    topic_id = await prepared(s)
    s.node.served.gate.configure(quotas=Meter())
    row = SERVED[ApiKey.OFFSET_COMMIT]
    for version in range(PLAIN_FROM, row.max_version + 1):
        plain = {"committed_metadata": "", "member_id": "", "group_instance_id": None, "committed_leader_epoch": -1}
        answer = await s.call(request_of(row, version, topic_id, **plain), version)
        assert (answer.throttle_time_ms, answer.topics[0].partitions[0].error_code) == (THROTTLE_MS, 0)


class Exhausted(Meter):
    def enter(self, request: Request) -> None:
        if request.row.quota is QuotaClass.CONTROLLER_MUTATION:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


@simulated(QUICK)
async def test_a_request_beyond_its_quota_is_refused_in_the_form_of_its_api(s: Session) -> None:
    topic_id = await prepared(s)
    s.node.served.gate.configure(quotas=Exhausted())
    for key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS):
        row = SERVED[key]
        answer = await s.call(request_of(row, row.max_version, topic_id), row.max_version)
        assert set(codes_in(answer)) == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert answer.throttle_time_ms == THROTTLE_MS


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name) for row in (SERVED | OF_CONTROLLERS).values() if row.key != ApiKey.PRODUCE]
)
def test_every_api_has_a_place_for_an_error_of_the_whole_request(row: ServedApi) -> None:
    for version in row.versions:
        answer = refusal(row, version, request_of(row, version, b"\1" * 16), ErrorCode.NOT_CONTROLLER, "not here")
        decoded, _ = decode(row.response, version, to_bytes(answer, version))
        is_without = row.key is ApiKey.DESCRIBE_LOG_DIRS and version < 3
        codes = set(codes_in(decoded)) - {ErrorCode.NONE}
        assert codes == (set() if is_without else {ErrorCode.NOT_CONTROLLER}), version


def test_a_refusal_names_what_the_request_named() -> None:
    def refused(key: ApiKey, version: int) -> Any:
        row = SERVED[key]
        return refusal(row, version, request_of(row, version, b"\1" * 16), ErrorCode.NOT_CONTROLLER)

    assert refused(ApiKey.CREATE_TOPICS, 7).topics[0].name == "new"
    assert refused(ApiKey.OFFSET_COMMIT, 10).topics[0].topic_id == b"\1" * 16
    assert refused(ApiKey.DELETE_GROUPS, 2).results[0].group_id == "g"
    assert refused(ApiKey.ELECT_LEADERS, 0).replica_election_results[0].topic == "t"
    assert refused(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0).results[0].user == "t"
    assert refused(ApiKey.ALTER_REPLICA_LOG_DIRS, 2).results[0].topic_name == "t"
    (entry,) = refused(ApiKey.ALTER_CLIENT_QUOTAS, 1).entries
    assert (entry.entity[0].entity_type, entry.entity[0].entity_name) == ("t", "t")
    (deleted,) = refused(ApiKey.DELETE_RECORDS, 2).topics
    assert [(part.partition_index, part.low_watermark) for part in deleted.partitions] == [(0, -1)]


# -- fields that were constants ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", SERVED[ApiKey.FETCH].versions)
def test_a_fetch_tells_last_stable_offset_aborted_transactions_and_throttle_time(version: int) -> None:
    topic = b"\1" * 16 if version >= 13 else b"t"
    reads = [
        Read(FetchItem(topic, 0), 0, 100, 5, None, last_stable=90, aborted=[(7, 40), (8, 50)]),
        Read(FetchItem(topic, 1), 0, 100, 5, None, aborted=[]),
        Read(FetchItem(topic, 2), 0, 100, 5, None),
    ]
    parts, _ = encode(version, 3, 0, reads, THROTTLE_MS)
    data = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
    correlation_id, position = read_response_header(data, ApiKey.FETCH, version, 4)
    answer, end = decode(FetchResponse, version, data, position, limits=Limits())
    assert (correlation_id, end, answer.throttle_time_ms) == (3, len(data), THROTTLE_MS)
    found = [
        (
            part.last_stable_offset,
            part.aborted_transactions and [(one.producer_id, one.first_offset) for one in part.aborted_transactions],
            part.high_watermark,
            part.preferred_read_replica,
        )
        for part in answer.responses[0].partitions
    ]
    assert found == [(90, [(7, 40), (8, 50)], 100, -1), (100, [], 100, -1), (100, None, 100, -1)]


# -- a new API ---------------------------------------------------------------------------------------------------------

TOY_ROW = ServedApi(ApiKey.END_TXN, 0, 5, "A toy: appends its transactional id", access=(WRITE_TRANSACTIONAL_ID,))


def toy() -> ModuleType:
    """The module of a new API, with an ACL, a quota and an append."""

    def serve(node: Node, request: Request, body: EndTxnRequest) -> EndTxnResponse:
        request.check(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id)
        partition = node.table.find(b"t", 0)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        records = memoryview(bytearray(batch(body.transactional_id.encode())))
        first, _, _, _ = partition.append(records, 1, node.runtime.wall_ms())
        return EndTxnResponse(producer_id=first)

    module = ModuleType("end_txn")
    module.serve = serve  # type: ignore[attr-defined]
    return module


def test_a_new_api_takes_one_module_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVED, ApiKey.END_TXN, TOY_ROW)
    monkeypatch.setattr(sim_broker, "_API_OF", {})  # what the tests' own client knows
    monkeypatch.setitem(sys.modules, "penstock.broker.apis.end_txn", toy())

    async def scenario(s: Session) -> None:
        request = EndTxnRequest(transactional_id="x")
        missing = await s.call(request, 5)
        await s.create("t", partitions=1)
        gate = s.node.served.gate
        gate.configure(authorizer=Deny(WRITE_TRANSACTIONAL_ID))
        denied = await s.call(request, 5)
        gate.configure(quotas=Meter())
        served = [await s.call(request, 5) for _ in range(2)]
        gate.configure()
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert denied.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert [(answer.error_code, answer.producer_id) for answer in served] == [(0, 0), (0, 1)]
        assert {answer.throttle_time_ms for answer in served} == {THROTTLE_MS}
        assert await s.values("t") == [b"x", b"x"]

    run_session(scenario, QUICK)
