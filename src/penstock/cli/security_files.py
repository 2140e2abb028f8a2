"""The files of a secured cluster: certificates, properties, and a first data directory that knows the administrator.

Everything is created once and kept: a second run finds the authority and adds what is missing. Files with secrets are
readable for their owner only.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.broker.security.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    SALT_BYTES,
    Credential,
    make_credential,
)
from penstock.config import BrokerConfig, parse_properties
from penstock.config.local_security import (
    ADMIN,
    CA_FILE,
    CA_KEY_FILE,
    client_settings,
    node_file,
    node_name,
)
from penstock.metadata import MetaProperties, format_directory
from penstock.metadata.credentials import StoredCredential, credential_record
from penstock.raft import Endpoint, Voter, VoterSet
from penstock.runtime.authority import Authority
from penstock.runtime.identity import random_uuid
from penstock.wire.messages.metadata_records import UserScramCredentialRecord
from penstock.wire.uuids import format_uuid

SECRET_MODE = 0o600
PASSWORD_BYTES = 18


class NotFormatted(Exception):
    """A data directory cannot be formatted; the message says why."""


def create_certificates(directory: Path, hosts: Sequence[str], nodes: int) -> None:
    """An authority, and a certificate for each node that has none yet."""
    directory.mkdir(parents=True, exist_ok=True)
    ca, key = directory / CA_FILE, directory / CA_KEY_FILE
    if ca.exists() and key.exists():
        authority = Authority.load(key.read_text(encoding="ascii"), ca.read_text(encoding="ascii"))
    else:
        authority = Authority.new()
        write_secret(key, authority.key)
        ca.write_text(authority.certificate, encoding="ascii")
    for node_id in range(1, nodes + 1):
        path = directory / node_file(node_id)
        if not path.exists():
            write_secret(path, authority.issue(node_name(node_id), hosts).store)


def create_client(path: Path, security: Path, bootstrap: str) -> str:
    """The administrator's client file; returns the password in it. An existing file keeps its password."""
    password = None
    if path.exists():
        password = parse_properties(path.read_text(encoding="utf-8")).get("sasl.password")
    password = password or secrets.token_urlsafe(PASSWORD_BYTES)
    settings = {"bootstrap.servers": bootstrap, **client_settings(str(security.resolve()), ADMIN, password)}
    write_secret(path, properties_text("The administrator's way to the cluster. Keep it secret.", settings))
    return password


def properties_text(head: str, settings: Mapping[str, str]) -> str:
    lines = [f"{name}={value}" for name, value in settings.items()]
    return "\n".join([f"# {head}", *lines, ""])


def write_secret(path: Path, text: str) -> None:
    """Never readable for others, not even for a moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, SECRET_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), SECRET_MODE)
        file.write(text)


# ---- data directories


def credential_of(
    user: str, password: str, mechanism: str, iterations: int = ITERATIONS_MIN
) -> UserScramCredentialRecord:
    number = MECHANISMS[mechanism]
    made: Credential = make_credential(number, password, secrets.token_bytes(SALT_BYTES), iterations)
    return credential_record(user, number, StoredCredential(*made))


def admin_credentials(password: str) -> list[UserScramCredentialRecord]:
    return [credential_of(ADMIN, password, mechanism) for mechanism in MECHANISMS]


def format_data(
    config: BrokerConfig, credentials: Sequence[UserScramCredentialRecord], cluster_id: str | None = None
) -> str:
    """Format the data directory of the node that founds a cluster, with users that can log in from the start. Returns
    the cluster id. Raises NotFormatted."""
    root = Path(config.log_dir)
    if (root / "meta.properties").exists():
        raise NotFormatted(f"{root} is formatted already")
    if "controller" not in config.process_roles:
        raise NotFormatted("only a node with the controller role founds a cluster; the others join it by themselves")
    now_ms = time.time_ns() // 1_000_000
    identity = MetaProperties(
        cluster_id or format_uuid(random_uuid(os.urandom)), config.node_id, random_uuid(os.urandom)
    )
    voter = Voter(config.node_id, identity.directory_id, (Endpoint(*_own_endpoint(config)),))
    files = format_directory(identity, VoterSet.of([voter]), timestamp_ms=now_ms, credentials=credentials)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    return identity.cluster_id


def _own_endpoint(config: BrokerConfig) -> tuple[str, str, int]:
    named = next((voter for voter in config.quorum_voters if voter.id == config.node_id), None)
    if not config.controller_listeners:
        listener = config.listeners[0]
        return "CONTROLLER", listener.host or "localhost", listener.port
    endpoint = config.controller_listeners[0]
    host = named.host if named is not None else endpoint.host or "localhost"
    return endpoint.name, host, endpoint.port or (named.port if named is not None else 0)
