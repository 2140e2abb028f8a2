"""An Apache Kafka with every listener that a client may have to log in to, and the certificates for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.apache_kafka import CLUSTER_ID, ApacheKafka, kafka_tool
from support.ports import free_ports

USER = "alice"
PASSWORD = 'al,ice="s" secret'
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KEY_PASSWORD = "key-secret"


class Certificates:
    """An authority, and certificates for a broker and a client, made with the openssl command."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
                      "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
        self.ca = directory / "ca.pem"
        self.broker = self._signed("broker", "IP:127.0.0.1")
        self.client = self._signed("client", "DNS:client")
        self._openssl("pkcs8", "-topk8", "-in", "client.key", "-out", "locked.key", "-passout", f"pass:{KEY_PASSWORD}")
        self.locked_client = directory / "locked.pem"
        self.locked_client.write_text((directory / "locked.key").read_text() + (directory / "client.crt").read_text())

    def _signed(self, name: str, alternative: str) -> Path:
        """A PEM store as Kafka wants it: the key in PKCS#8, then the certificate."""
        (self.directory / "extensions").write_text(f"subjectAltName={alternative}\n")
        self._openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                      "-out", f"{name}.csr")  # fmt: skip
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                      "-days", "2", "-extfile", "extensions", "-out", f"{name}.crt")  # fmt: skip
        store = self.directory / f"{name}.pem"
        store.write_text((self.directory / f"{name}.key").read_text() + (self.directory / f"{name}.crt").read_text())
        return store

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True, timeout=60)


class SecuredKafka(ApacheKafka):
    """Plain text for the tests themselves; TLS (client certificate wanted), SASL, and SASL over TLS for the client."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__(heap="512M")
        names = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
        more = ",".join(f"{name}://{address}" for name, address in self.addresses.items())
        text = self._properties_path.read_text(encoding="utf-8")
        lines = []
        for line in text.splitlines():
            if line.startswith(("listeners=", "advertised.listeners=")):
                line += f",{more}"
            elif line.startswith("listener.security.protocol.map="):
                line += "," + ",".join(f"{name}:{name}" for name in names)
            lines.append(line)
        lines += [f"{name}={value}" for name, value in self._security(certificates).items()]
        self._properties_path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def format(self) -> None:
        if not self._formatted:
            credentials = [
                argument
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                for argument in ("--add-scram", f'{mechanism}=[name="{USER}",password="{USER}-scram"]')
            ]
            config = ("--config", str(self._properties_path))
            kafka_tool("StorageTool", "format", "--cluster-id", CLUSTER_ID, *config, *credentials)
            self._formatted = True

    def _security(self, certificates: Certificates) -> dict[str, str]:
        properties = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}"
            properties |= {
                f"{prefix}.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{_escaped(PASSWORD)}";',
                f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
                f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
                f"{prefix}.oauthbearer.sasl.jaas.config": f'{OAUTHBEARER} required unsecuredLoginStringClaim_sub="b";',
                f"{prefix}.plain.connections.max.reauth.ms": "3000",
            }
        return properties


def login(mechanism: str, **options: str) -> dict[str, str]:
    """The properties of a client that logs in so."""
    module = PLAIN if mechanism == "PLAIN" else OAUTHBEARER if mechanism == "OAUTHBEARER" else SCRAM
    pairs = " ".join(f'{name}="{value.replace(chr(34), chr(92) + chr(34))}"' for name, value in options.items())
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {pairs};"}


def _escaped(text: str) -> str:
    """In quotes of a login string, which is itself a value of a properties file."""
    return text.replace('"', '\\\\"')


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make certificates with")
    return Certificates(tmp_path_factory.mktemp("certificates"))
