"""A broker in a process of its own with a listener for each security protocol, and what clients need to use them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.runtime.authority import Authority
from support.ports import free_ports
from support.server_process import ServerProcess

USER, PASSWORD = "alice", "alice-secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUDIENCE, ISSUER = "penstock-test", "https://issuer.example"


class Issuer:
    """Signs tokens, and publishes its keys in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.kid = "k1"
        self.publish()

    def publish(self) -> None:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        entry = {**public, "kid": self.kid, "use": "sig", "alg": "ES256"}
        self.path.write_text(json.dumps({"keys": [entry]}))

    def token(self, **changes: Any) -> str:
        now = int(time.time())
        claims = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600, **changes}
        return jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": self.kid})


class SecuredServer(ServerProcess):
    """`penstock server` with the listeners PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL."""

    name = "Secured Penstock"

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.authority = Authority.new()
        self.ports = dict(zip(("SSL", "SASL_PLAINTEXT", "SASL_SSL"), free_ports(3), strict=True))
        files = self.directory
        (files / "ca.pem").write_text(self.authority.certificate)
        (files / "node.pem").write_text(self.authority.issue("node-1", ["127.0.0.1", "localhost"]).store)
        client = self.authority.issue(USER)
        (files / "client.key").write_text(client.key)
        (files / "client.crt").write_text(client.certificate)
        (files / "client.pem").write_text(client.store)
        self.issuer = Issuer(files / "jwks.json")
        self.config_path = files / "server.properties"
        self.config_path.write_text("\n".join(f"{name}={value}" for name, value in self.settings().items()))

    def settings(self) -> dict[str, str]:
        listeners = {"PLAINTEXT": self.port, **self.ports}
        mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        return {
            "node.id": "1",
            "log.dirs": str(self.data_dir),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "ssl.keystore.location": str(self.directory / "node.pem"),
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.+)$/$1/",
            "sasl.enabled.mechanisms": mechanisms,
            "sasl.jaas.config": f'{MODULE} required user_{USER}="{PASSWORD}";',
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.path.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def format(self) -> None:
        """Nothing to do."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "penstock", "server", "--config", str(self.config_path)]

    def address(self, protocol: str) -> str:
        return f"127.0.0.1:{self.ports[protocol]}"

    def librdkafka(self, protocol: str, mechanism: str | None) -> dict[str, Any]:
        """Settings of librdkafka's clients, without tokens."""
        settings: dict[str, Any] = {"bootstrap.servers": self.address(protocol), "security.protocol": protocol}
        if "SSL" in protocol:
            settings["ssl.ca.location"] = str(self.directory / "ca.pem")
        if protocol == "SSL":
            settings["ssl.certificate.location"] = str(self.directory / "client.crt")
            settings["ssl.key.location"] = str(self.directory / "client.key")
        if mechanism is not None:
            settings["sasl.mechanism"] = mechanism
            if mechanism != "OAUTHBEARER":
                settings |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return settings
