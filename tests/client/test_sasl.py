"""SASL mechanisms as pure exchanges: the standards' own examples, and brokers that are none."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.client import AuthenticationFailed, ConnectionFailed
from penstock.client.sasl import SCRAM_SHA_256, SCRAM_SHA_512, OAuthBearer, OAuthSettings, Plain, Scram
from penstock.client.tokens import LIFE_USED, obtain

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def started() -> Scram:
    return Scram(SCRAM_SHA_256, "user", "pencil", nonce=NONCE)


def test_scram_follows_the_example_of_its_standard() -> None:
    mechanism = started()
    assert mechanism.first() == b"n,,n=user,r=" + NONCE.encode()
    assert mechanism.answer(SERVER_FIRST) == CLIENT_FINAL
    assert not mechanism.complete
    assert mechanism.answer(SERVER_FINAL) is None
    assert mechanism.complete


def test_scram_escapes_names_and_marks_delegation_tokens() -> None:
    mechanism = Scram(SCRAM_SHA_512, "a=b,c", "p", token_auth=True, nonce="N")
    assert mechanism.first() == b"n,,n=a=3Db=2Cc,r=N,tokenauth=true"


def test_every_scram_exchange_has_a_nonce_of_its_own() -> None:
    assert Scram(SCRAM_SHA_256, "u", "p").first() != Scram(SCRAM_SHA_256, "u", "p").first()


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"e=unknown-user",
        b"\xff\xfe",
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=!!,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999999",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-1",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=" + b"9" * 5000,
        b"x" * 100_000,
    ],
)
def test_scram_challenges_that_make_no_sense_are_refused_at_once(challenge: bytes) -> None:
    before = time.process_time()
    with pytest.raises(AuthenticationFailed):
        started().answer(challenge)
    assert time.process_time() - before < 1


@pytest.mark.parametrize("final", [b"v=AAAA", b"", b"e=other-error", SERVER_FINAL[:-6] + b"AAAA="])
def test_a_broker_that_does_not_know_the_password_is_found_out(final: bytes) -> None:
    mechanism = started()
    mechanism.answer(SERVER_FIRST)
    with pytest.raises(AuthenticationFailed, match="did not prove"):
        mechanism.answer(final)
    assert not mechanism.complete


def test_plain_and_oauthbearer_say_it_in_one_message() -> None:
    assert Plain("alice", "pä").first() == "\0alice\0pä".encode()
    assert Plain("a", "b").answer(b"") is None
    assert OAuthBearer("T").first() == b"n,,\x01auth=Bearer T\x01\x01"
    assert OAuthBearer("T", (("k", "v"),)).first() == b"n,,\x01auth=Bearer T\x01k=v\x01\x01"
    assert OAuthBearer("T").answer(b'{"status":"invalid_token"}') == b"\x01"


# Tokens


@contextmanager
def endpoint(status: int, body: bytes, headers: dict[str, str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """A token endpoint that always answers the same, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            asked.append(f"{self.headers['Authorization']} {self.rfile.read(size).decode()}")
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def oauth(url: str) -> OAuthSettings:
    return OAuthSettings(token_endpoint_url=url, client_id="me", client_secret="hush", scope="kafka")


def test_a_token_is_asked_for_with_the_clients_credentials() -> None:
    with endpoint(200, b'{"access_token": "abc.def", "expires_in": 100}') as (url, asked):
        token = obtain(oauth(url), None, 5)
    assert token.text == "abc.def"
    assert token.use_until_s == pytest.approx(time.time() + 100 * LIFE_USED, abs=5)
    basic = base64.b64encode(b"me:hush").decode()
    assert asked == [f"Basic {basic} grant_type=client_credentials&scope=kafka"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b""),
        (500, b"oops"),
        (200, b"not json"),
        (200, b"[]"),
        (200, b'{"token": 1}'),
        (200, b'{"access_token": "has space"}'),
        (200, b'{"access_token": "new\\u0001line"}'),
        (200, b'{"access_token": "' + b"a" * 2_000_000 + b'"}'),
    ],
)
def test_answers_of_a_token_endpoint_that_are_no_token_are_refused(status: int, body: bytes) -> None:
    with endpoint(status, body) as (url, _), pytest.raises(AuthenticationFailed) as caught:
        obtain(oauth(url), None, 5)
    assert "hush" not in str(caught.value)


def test_a_redirect_does_not_take_the_secret_elsewhere() -> None:
    with (
        endpoint(200, b'{"access_token": "abc"}') as (elsewhere, asked),
        endpoint(302, b"", {"Location": elsewhere}) as (url, _),
        pytest.raises(AuthenticationFailed, match="302"),
    ):
        obtain(oauth(url), None, 5)
    assert asked == []


def test_a_token_endpoint_that_is_not_there_is_a_connection_that_failed() -> None:
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        obtain(oauth("http://127.0.0.1:1/token"), None, 5)


def test_a_token_may_come_from_a_file_but_not_an_expired_one(tmp_path: Path) -> None:
    path = tmp_path / "token"

    def write(expires_s: float) -> None:
        claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_s}).encode()).rstrip(b"=").decode()
        path.write_text(f"h.{claims}.s\n")

    write(time.time() + 1000)
    token = obtain(OAuthSettings(token_endpoint_url=path.as_uri()), None, 5)
    assert token.text == path.read_text().strip()
    assert token.use_until_s == pytest.approx(time.time() + 800, abs=5)
    write(time.time() - 1)
    with pytest.raises(AuthenticationFailed, match="expired"):
        obtain(OAuthSettings(token_endpoint_url=path.as_uri()), None, 5)
    with pytest.raises(AuthenticationFailed, match="none"):
        obtain(OAuthSettings(token_endpoint_url=(tmp_path / "none").as_uri()), None, 5)
