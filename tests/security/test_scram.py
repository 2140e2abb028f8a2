"""SCRAM against an independent implementation, and against those who cheat."""

from __future__ import annotations

import pytest
from scramp import ScramClient, ScramMechanism

from penstock.broker.security import scram
from penstock.broker.security.plain import PlainError, check_plain, plain_message, users_of

NONCE = "server-nonce-0123456789"
MECHANISMS = sorted(scram.MECHANISMS)


def credential(mechanism: str, password: str = "secret") -> scram.Credential:
    return scram.make_credential(scram.MECHANISMS[mechanism], password, b"salt" * 6)


def exchanged(mechanism: str, user: str, password: str, stored: scram.Credential) -> scram.ServerExchange:
    """A login of scramp's client on our server."""
    client = ScramClient([mechanism], user, password)
    server = scram.ServerExchange(scram.MECHANISMS[mechanism], NONCE)
    server.first(client.get_client_first().encode())
    client.set_server_first(server.challenge(stored).decode())
    client.set_server_final(server.final(client.get_client_final().encode()).decode())
    return server


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "zoë"])
def test_a_foreign_client_logs_in_and_believes_us(mechanism: str, user: str) -> None:
    assert exchanged(mechanism, user, "secret", credential(mechanism)).user == user


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(mechanism: str) -> None:
    with pytest.raises(scram.ScramError):
        exchanged(mechanism, "alice", "wrong", credential(mechanism))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in_at_a_foreign_server(mechanism: str) -> None:
    number = scram.MECHANISMS[mechanism]
    m = ScramMechanism(mechanism)
    salt, stored_key, server_key, iterations = m.make_auth_info("secret", iteration_count=4096)
    server = m.make_server(lambda name: (salt, stored_key, server_key, iterations))
    client = scram.ClientExchange(number, "alice", "client-nonce")
    server.set_client_first(client.first().decode())
    found_salt, count = client.challenged(server.get_server_first().encode())
    server.set_client_final(client.final(scram.salted_password(number, "secret", found_salt, count)).decode())
    client.verify(server.get_server_final().encode())


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = scram.ClientExchange(1, "alice", "client-nonce")
    client.first()
    salt, count = client.challenged(b"r=client-nonceXYZ,s=c2FsdA==,i=4096")
    client.final(scram.salted_password(1, "secret", salt, count))
    with pytest.raises(scram.ScramError, match="impostor"):
        client.verify(b"v=AAAA")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=c2FsdA==,i=4096",
        b"r=client-nonce,s=c2FsdA==,i=4096",
        b"r=client-nonceXYZ,s=c2FsdA==,i=1",
        b"r=client-nonceXYZ,s=c2FsdA==,i=999999999",
        b"r=client-nonceXYZ,s=?,i=4096",
    ],
)
def test_a_challenge_with_a_foreign_nonce_or_absurd_iterations_is_refused(challenge: bytes) -> None:
    client = scram.ClientExchange(1, "alice", "client-nonce")
    with pytest.raises(scram.ScramError):
        client.challenged(challenge)


def test_a_recorded_login_cannot_be_replayed() -> None:
    stored = credential("SCRAM-SHA-256")
    client = ScramClient(["SCRAM-SHA-256"], "alice", "secret")
    recorded_first = client.get_client_first().encode()
    server = scram.ServerExchange(1, NONCE)
    server.first(recorded_first)
    client.set_server_first(server.challenge(stored).decode())
    recorded_final = client.get_client_final().encode()
    server.final(recorded_final)
    again = scram.ServerExchange(1, "another-nonce")
    again.first(recorded_first)
    again.challenge(stored)
    with pytest.raises(scram.ScramError, match="nonce"):
        again.final(recorded_final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"n,,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,n=bob,r=abc",
        b"n,,n=\xff\xfe,r=abc",
        b"n,,n=" + b"a" * 5000 + b",r=abc",
        b"n,,n=alice,r=" + b"a" * 5000,
    ],
)
def test_a_first_message_that_is_wrong_or_speaks_for_another_is_refused(first: bytes) -> None:
    with pytest.raises(scram.ScramError):
        scram.ServerExchange(1, NONCE).first(first)


def test_an_unknown_user_gets_the_same_challenge_each_time_and_never_logs_in() -> None:
    challenges = []
    for _ in range(2):
        stored = scram.absent_credential(1, "nobody", b"secret of the process")
        server = scram.ServerExchange(1, NONCE)
        server.first(b"n,,n=nobody,r=abc")
        challenges.append(server.challenge(stored))
    assert challenges[0] == challenges[1]
    with pytest.raises(scram.ScramError):
        exchanged("SCRAM-SHA-256", "nobody", "", stored)


def test_secrets_are_not_in_the_text_of_a_credential() -> None:
    assert "stored" not in repr(credential("SCRAM-SHA-512")).lower()


# ---- PLAIN


def test_users_are_those_with_the_prefix() -> None:
    assert users_of({"username": "x", "user_alice": "a", "user_bob": "b"}) == {"alice": "a", "bob": "b"}


def test_plain_knows_its_users() -> None:
    assert check_plain(plain_message("alice", "a"), {"alice": "a"}) == "alice"
    assert check_plain(b"alice\0alice\0a", {"alice": "a"}) == "alice"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0alice\0wrong",
        b"\0bob\0a",
        b"bob\0alice\0a",
        b"\0alice\0",
        b"\0\0a",
        b"\0alice",
        b"\0a\0b\0c",
        b"\0\xff\0a",
    ],
)
def test_plain_refuses_wrong_passwords_impersonation_and_nonsense(message: bytes) -> None:
    with pytest.raises(PlainError):
        check_plain(message, {"alice": "a"})
