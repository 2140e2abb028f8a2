"""The security of a cluster on one machine: which files there are, and the properties that use them.

Clients log in with SCRAM over TLS (SASL_SSL). Nodes show each other certificates (SSL) on their own listeners, so a
client can never pose as a node. Everything is in one directory:

    ca.pem, ca-key.pem       the authority that signed all certificates
    node-1.pem …             a key and a certificate for each node, named node-1 …
    client.properties        what the first administrator needs, with librdkafka's names

`penstock security init`, `penstock up --secure` and `penstock.testing` use these settings.
"""

from __future__ import annotations

from collections.abc import Iterable

ADMIN = "admin"
CA_FILE = "ca.pem"
CA_KEY_FILE = "ca-key.pem"
CLIENT_FILE = "client.properties"
CLIENT_LISTENER = "SASL_SSL"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLIENT_MECHANISM = "SCRAM-SHA-512"


def node_name(node_id: int) -> str:
    """The name in a node's certificate, and so its principal."""
    return f"node-{node_id}"


def node_file(node_id: int) -> str:
    return f"{node_name(node_id)}.pem"


def secure_settings(directory: str, node_id: int, nodes: Iterable[int]) -> dict[str, str]:
    """The security properties of one node. `nodes`: all nodes of the cluster."""
    return {
        "listener.security.protocol.map": f"{CLIENT_LISTENER}:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
        "ssl.keystore.location": f"{directory}/{node_file(node_id)}",
        "ssl.truststore.location": f"{directory}/{CA_FILE}",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        f"listener.name.{CLIENT_LISTENER.lower()}.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": AUTHORIZER,
        "penstock.audit.destination": "file",
        "super.users": ";".join(f"User:{name}" for name in (ADMIN, *map(node_name, nodes))),
    }


def client_settings(directory: str, user: str, password: str) -> dict[str, str]:
    """What a client needs, with librdkafka's names; without `bootstrap.servers`."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": CLIENT_MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": f"{directory}/{CA_FILE}",
    }
