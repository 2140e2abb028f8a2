"""Certificates and a first administrator for a cluster of a test process."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from penstock.broker.security.scram import MECHANISMS, make_credential
from penstock.config.local_security import (
    ADMIN,
    CA_FILE,
    CA_KEY_FILE,
    CLIENT_MECHANISM,
    client_settings,
    node_file,
    node_name,
)
from penstock.metadata.credentials import StoredCredential, credential_record
from penstock.runtime.authority import Authority, Issued
from penstock.wire.messages.metadata_records import UserScramCredentialRecord

__all__ = ["ClusterSecurity"]

PASSWORD = "admin-secret"
LIFETIME = timedelta(days=30)


class ClusterSecurity(NamedTuple):
    """The files of one cluster."""

    directory: Path
    authority: Authority
    host: str

    @classmethod
    def create(cls, directory: Path, host: str, nodes: int) -> ClusterSecurity:
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority.new()
        made = cls(directory, authority, host)
        (directory / CA_FILE).write_text(authority.certificate)
        (directory / CA_KEY_FILE).write_text(authority.key)
        for node_id in range(1, nodes + 1):
            made.renew(node_id)
        return made

    def renew(self, node_id: int) -> None:
        """Gives a node another certificate; it takes it up within seconds, without a restart."""
        path = self.directory / node_file(node_id)
        new = path.with_suffix(".new")
        new.write_text(self.authority.issue(node_name(node_id), [self.host, "localhost"], lifetime=LIFETIME).store)
        new.replace(path)

    def client_certificate(self, name: str, *, lifetime: timedelta = LIFETIME) -> Issued:
        return self.authority.issue(name, lifetime=lifetime)

    def client_settings(self, user: str = ADMIN, password: str = PASSWORD) -> dict[str, str]:
        """librdkafka's settings for a user of SCRAM."""
        return client_settings(str(self.directory), user, password)

    def credentials(self) -> list[UserScramCredentialRecord]:
        """Of the administrator."""
        number = MECHANISMS[CLIENT_MECHANISM]
        made = make_credential(number, PASSWORD, b"salt of the administrator")
        return [credential_record(ADMIN, number, StoredCredential(*made))]
