"""Logins on a simulated broker: who gets in, who does not, and what it costs to try."""

from __future__ import annotations

import pytest

from broker.session import Session, batch, produce_request, simulated
from penstock.broker import limits
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from security.logins import (
    WITH_LOGINS,
    connected,
    handshake,
    plain_login,
    scram_login,
    set_password,
    upsertion,
)

METADATA = MetadataRequest(topics=[])
SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}


@simulated(WITH_LOGINS)
async def test_a_user_of_the_listeners_settings_logs_in_with_plain(s: Session) -> None:
    client = await connected(s)
    assert (await client.call(ApiVersionsRequest(**SOFTWARE), 3)).error_code == 0
    assert (await plain_login(client, "alice", "alice-secret")).error_code == 0
    assert (await client.call(METADATA, 12)).brokers[0].port == 9102, "told of the listener it came by"
    assert s.node.served.authenticator.successes == 1


@simulated(WITH_LOGINS)
async def test_before_login_nothing_else_is_served_and_the_connection_is_closed(s: Session) -> None:
    client = await connected(s)
    with pytest.raises(ConnectionError):
        await client.call(METADATA, 12)


@simulated(WITH_LOGINS)
async def test_a_failed_login_is_delayed_counted_logged_without_the_secret_and_ends_the_connection(s: Session) -> None:
    client = await connected(s)
    began_ms = s.runtime.now_ms()
    answer = await plain_login(client, "alice", "guessed-secret")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert s.runtime.now_ms() - began_ms >= 100, "connection.failed.authentication.delay.ms"
    with pytest.raises(ConnectionError):
        await client.call(METADATA, 12)
    assert s.node.served.authenticator.failures == 1
    told = str(s.node.events.named("login failed"))
    assert "PLAIN" in told
    assert "guessed-secret" not in told + str(answer)


@simulated(WITH_LOGINS)
async def test_nobody_learns_from_the_answer_whether_a_user_exists(s: Session) -> None:
    answers = []
    for user in ("alice", "nobody"):
        answer = await plain_login(await connected(s), user, "wrong")
        answers.append((answer.error_code, answer.error_message))
    await set_password(s, "alice", "alice-secret")
    for user in ("alice", "nobody"):
        answer = await scram_login(await connected(s), "SCRAM-SHA-256", user, "wrong")
        answers.append((answer.error_code, answer.error_message))
    assert len(dict.fromkeys(answers)) == 1


@simulated(WITH_LOGINS)
async def test_scram_credentials_are_kept_in_the_metadata_log(s: Session) -> None:
    await set_password(s, "carol", "carol-secret", 1)
    await set_password(s, "carol", "carol-secret", 2)
    assert (await scram_login(await connected(s), "SCRAM-SHA-256", "carol", "carol-secret")).error_code == 0
    assert (await scram_login(await connected(s), "SCRAM-SHA-512", "carol", "carol-secret")).error_code == 0
    assert (await scram_login(await connected(s), "SCRAM-SHA-256", "carol", "guess")).error_code == 58
    await s.restarted()
    assert (await scram_login(await connected(s), "SCRAM-SHA-512", "carol", "carol-secret")).error_code == 0
    image = s.node.served.quorum.image
    assert "carol-secret" not in repr(dict(image.scram))


@simulated(WITH_LOGINS)
async def test_credentials_are_described_without_keys_and_deleted(s: Session) -> None:
    await set_password(s, "carol", "carol-secret", 2)
    described = await s.call(DescribeUserScramCredentialsRequest(users=None))
    assert [(r.user, [(i.mechanism, i.iterations) for i in r.credential_infos]) for r in described.results] == [
        ("carol", [(2, 4096)])
    ]
    asked = [UserName(name="carol"), UserName(name="nobody")]
    described = await s.call(DescribeUserScramCredentialsRequest(users=asked))
    assert [r.error_code for r in described.results] == [0, ErrorCode.RESOURCE_NOT_FOUND]
    deletion = ScramCredentialDeletion(name="carol", mechanism=2)
    answer = await s.call(AlterUserScramCredentialsRequest(deletions=[deletion]))
    assert answer.results[0].error_code == 0
    answer = await s.call(AlterUserScramCredentialsRequest(deletions=[deletion]))
    assert answer.results[0].error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert (await scram_login(await connected(s), "SCRAM-SHA-512", "carol", "carol-secret")).error_code == 58


@simulated(WITH_LOGINS)
async def test_credentials_that_are_weak_or_nonsense_are_refused(s: Session) -> None:
    many = upsertion("many", "x")
    many.iterations = 16_385
    few = upsertion("few", "x")
    few.iterations = 4_095
    short = upsertion("short", "x")
    short.salted_password = b"x"
    unknown = upsertion("unknown", "x")
    unknown.mechanism = 9
    nobody = upsertion("", "x")
    twice = [upsertion("twice", "x"), upsertion("twice", "y")]
    request = AlterUserScramCredentialsRequest(upsertions=[many, few, short, unknown, nobody, *twice])
    answer = await s.call(request)
    assert {result.user: result.error_code for result in answer.results} == {
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "short": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "unknown": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
    }
    assert not s.node.served.quorum.image.scram


@simulated(WITH_LOGINS)
async def test_an_unknown_mechanism_is_answered_with_those_that_are_offered(s: Session) -> None:
    client = await connected(s)
    answer = await handshake(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    with pytest.raises(ConnectionError):
        await client.call(ApiVersionsRequest(**SOFTWARE), 3)


@simulated(WITH_LOGINS)
async def test_messages_out_of_order_are_refused(s: Session) -> None:
    client = await connected(s)
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await plain_login(client, "alice", "alice-secret")).error_code == 0


@simulated(WITH_LOGINS)
async def test_a_plaintext_listener_has_no_logins(s: Session) -> None:
    assert (await handshake(s.client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE


@simulated({**WITH_LOGINS, "listener.name.logins.connections.max.reauth.ms": "10000"})
async def test_a_login_expires_unless_it_is_renewed(s: Session) -> None:
    renewing, lazy = await connected(s), await connected(s)
    for client in (renewing, lazy):
        answer = await plain_login(client, "alice", "alice-secret")
        assert 0 < answer.session_lifetime_ms <= 10_000
    await s.runtime.sleep(6_000)
    assert (await plain_login(renewing, "alice", "alice-secret")).error_code == 0
    assert (await lazy.call(METADATA, 12)).brokers
    await s.runtime.sleep(6_000)
    assert (await renewing.call(METADATA, 12)).brokers
    with pytest.raises(ConnectionError):
        await lazy.call(METADATA, 12)


@simulated({**WITH_LOGINS, "listener.name.logins.connections.max.reauth.ms": "10000"})
async def test_a_login_cannot_be_renewed_as_somebody_else(s: Session) -> None:
    client = await connected(s)
    assert (await plain_login(client, "alice", "alice-secret")).error_code == 0
    assert (await plain_login(client, "bob", "b")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ConnectionError):
        await client.call(METADATA, 12)


# ---- memory before login


@simulated({**WITH_LOGINS, "sasl.server.max.receive.size": "10000"})
async def test_a_request_before_login_is_limited_in_size(s: Session) -> None:
    client = await connected(s)
    assert (await handshake(client, "PLAIN")).error_code == 0
    with pytest.raises(ConnectionError):
        await client.call(SaslAuthenticateRequest(auth_bytes=bytes(20_000)), 2)
    assert "before login" in s.node.events.said("connection closed", "reason")[-1]
    ready = await connected(s)
    assert (await plain_login(ready, "alice", "alice-secret")).error_code == 0
    answer = await ready.call(MetadataRequest(topics=None), 12)
    assert answer.brokers


@simulated(WITH_LOGINS)
async def test_all_clients_before_login_together_are_limited_in_memory(s: Session) -> None:
    """Many strangers each announce a large request and send half of it."""
    strangers = []
    count = limits.BEFORE_LOGIN_BYTES_MAX // 524_288 + 20
    for _ in range(count):
        client = await connected(s)
        strangers.append(client)
        client.frames.send_raw((500_000).to_bytes(4, "big") + b"\0\x24\0\2" + bytes(300_000))
    await s.until(lambda: bool(s.node.events.named("connection closed")))
    assert s.node.served.service.receiving_bytes <= limits.BEFORE_LOGIN_BYTES_MAX
    assert "memory for clients that have not logged in" in s.node.events.said("connection closed", "reason")[-1]
    assert (await plain_login(await connected(s), "alice", "alice-secret")).error_code == 0


class Recorded:
    """An audit log that keeps what it is told of logins."""

    def __init__(self) -> None:
        self.logins: list[tuple[str, bool]] = []

    def access(self, *rest: object) -> None: ...

    def answered(self, *rest: object) -> None: ...

    def login(self, *, principal: str, succeeded: bool, **rest: object) -> None:
        self.logins.append((principal, succeeded))


@simulated(WITH_LOGINS)
async def test_logins_are_audited(s: Session) -> None:
    await set_password(s, "carol", "carol-secret")
    recorded = Recorded()
    s.node.served.gate.audit = recorded  # type: ignore[assignment]
    await scram_login(await connected(s), "SCRAM-SHA-256", "carol", "carol-secret")
    await scram_login(await connected(s), "SCRAM-SHA-256", "carol", "wrong")
    assert recorded.logins == [("User:carol", True), ("User:carol", False)]


@simulated(WITH_LOGINS)
async def test_logins_are_counted_in_the_metrics(s: Session) -> None:
    await plain_login(await connected(s), "alice", "alice-secret")
    await plain_login(await connected(s), "alice", "wrong")
    counted = {
        dict(sample.labels)["result"]: sample.value
        for sample in s.node.served.authenticator.samples()
        if sample.name == "penstock_logins_total"
    }
    assert counted == {"succeeded": 1, "failed": 1}


@simulated(WITH_LOGINS)
async def test_a_decompression_bomb_before_login_is_not_even_decoded(s: Session) -> None:
    await s.create("t")
    bomb = batch(bytes(4_000_000), codec=Codec.GZIP)
    client = await connected(s)
    with pytest.raises(ConnectionError):
        await client.call(produce_request("t", bomb, 0, -1), 12)
    assert "before the client has authenticated" in s.node.events.said("connection closed", "reason")[-1]
    assert await s.values("t") == []


@simulated(WITH_LOGINS)
async def test_a_flood_of_tagged_fields_before_login_is_refused(s: Session) -> None:
    client = await connected(s)
    fields = b"".join(varint(number) + b"\x01x" for number in range(100, 20_100))
    # ApiVersions v3: header v2 without tags, two compact strings, then twenty thousand tagged fields.
    frame = b"\0\x12\0\x03" + bytes(4) + b"\xff\xff\0" + b"\x02a\x02b" + varint(20_000) + fields
    with pytest.raises(ConnectionError):
        await client.frames.request(frame)


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])
