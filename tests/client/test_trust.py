"""Who is trusted over TLS: those who were named and nobody else; and the token endpoint on its own terms."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from client.secured_kafka import OAUTHBEARER, Certificates
from penstock.client import AuthenticationFailed, ClientSettings, SettingsError, librdkafka_properties
from penstock.client.connection import Credentials
from penstock.client.tls import TlsSettings, context_of


@pytest.fixture(scope="module")
def endpoint(certificates: Certificates) -> Iterator[str]:
    """Gives out tokens over HTTPS, with a certificate of the private authority."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"access_token": "abc", "expires_in": 60}')

        def log_message(self, *_: object) -> None:
            pass

    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not trust us hangs up."""

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_trust_store_replaces_the_systems_authorities(certificates: Certificates) -> None:
    for tls in (TlsSettings(ca_path=str(certificates.ca)), TlsSettings(ca_pem=certificates.ca.read_text())):
        (only,) = context_of(tls).get_ca_certs()
        assert "authority" in str(only["subject"])


def test_authorities_may_be_a_directory(certificates: Certificates) -> None:
    context = context_of(TlsSettings(ca_path=str(certificates.directory)))
    assert context.get_ca_certs() == [], "loaded when one is needed, and no others before"
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_librdkafkas_word_for_the_systems_authorities_is_no_path() -> None:
    asked = {"bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.ca.location": "probe"}
    settings = ClientSettings.from_properties(asked)
    assert settings.tls == TlsSettings()


def oauth(endpoint: str, jaas: str = "", **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.jaas.config": f'{OAUTHBEARER} required clientId="me" clientSecret="hush" {jaas};',
    } | {name.replace("_", "."): value for name, value in more.items()}


def token(properties: dict[str, str]) -> bytes:
    return Credentials(ClientSettings.from_properties(properties)).mechanism().first()


def test_what_is_said_of_brokers_is_not_said_of_the_token_endpoint(endpoint: str, certificates: Certificates) -> None:
    for brokers in (
        {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(certificates.ca)},
        {"ssl_ca_location": str(certificates.ca), "ssl_endpoint_identification_algorithm": ""},
        {"enable_ssl_certificate_verification": "false"},
    ):
        with pytest.raises(AuthenticationFailed, match=r"not trusted .* or with https\.ca\.location"):
            token(oauth(endpoint, **brokers))


def test_a_token_endpoint_has_authorities_of_its_own(endpoint: str, certificates: Certificates) -> None:
    java = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.ca}"'
    assert b"Bearer abc" in token(oauth(endpoint, java))
    assert b"Bearer abc" in token(oauth(endpoint, https_ca_location=str(certificates.ca)))
    assert b"Bearer abc" in token(oauth(endpoint, https_ca_pem=certificates.ca.read_text()))
    with pytest.raises(SettingsError, match=r"https\.ca\.location: is empty"):
        token(oauth(endpoint, https_ca_location=""))
    with pytest.raises(SettingsError, match=r"ssl\.truststore\.type"):
        token(oauth(endpoint, 'ssl.truststore.location="/x/trust.jks"'))


def test_the_name_of_a_token_endpoint_is_always_checked(endpoint: str, certificates: Certificates) -> None:
    java = f'ssl.truststore.type=PEM ssl.truststore.location="{certificates.ca}"'
    elsewhere = endpoint.replace("127.0.0.1", "localhost")
    with pytest.raises(AuthenticationFailed, match=r"(?i)hostname mismatch"):
        token(oauth(elsewhere, f'{java} ssl.endpoint.identification.algorithm=""'))


def test_librdkafka_gets_the_token_endpoints_authorities(certificates: Certificates) -> None:
    java = f'ssl.truststore.type=PEM ssl.truststore.location="{certificates.ca}"'
    translated = librdkafka_properties(oauth("https://id.example/token", java))
    assert translated["https.ca.location"] == str(certificates.ca)
    assert "ssl.ca.location" not in translated, "the brokers' are the system's"
    store = f'ssl.keystore.type=PEM ssl.keystore.location="{certificates.client}"'
    with pytest.raises(SettingsError, match="token endpoint"):
        librdkafka_properties(oauth("https://id.example/token", store))
