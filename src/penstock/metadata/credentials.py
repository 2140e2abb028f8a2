"""SCRAM credentials of users, as records of the metadata log (KIP-554), and the controller's decisions about them.

Only what checks a password is stored, never the password. `StoredCredential` has the fields of
`UserScramCredentialRecord` in its order.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import metadata_records as r

SCRAM_HASHES: Final = {1: "sha256", 2: "sha512"}
"""By the mechanism's number in the protocol."""
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""Kafka's limits."""
SALT_BYTES_MAX: Final = 1_024
USER_LETTERS_MAX: Final = 249


class StoredCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"StoredCredential(iterations={self.iterations})"


Credentials = Mapping[tuple[str, int], StoredCredential]
"""By user and mechanism."""

NO_CREDENTIALS: Final[Credentials] = {}


class CredentialsDelta:
    """Credentials that records of one step set (or, with None, removed)."""

    def __init__(self) -> None:
        self.changed: dict[tuple[str, int], StoredCredential | None] = {}

    def set(self, record: r.UserScramCredentialRecord) -> None:
        self.changed[record.name, record.mechanism] = StoredCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )

    def remove(self, record: r.RemoveUserScramCredentialRecord) -> None:
        self.changed[record.name, record.mechanism] = None

    def apply(self, before: Credentials) -> Credentials:
        if not self.changed:
            return before
        merged = {**before, **self.changed}
        return {key: value for key, value in sorted(merged.items()) if value is not None}


def credential_records(credentials: Credentials) -> Iterator[r.UserScramCredentialRecord]:
    """Records that state all credentials, for a snapshot."""
    for (user, mechanism), found in credentials.items():
        yield credential_record(user, mechanism, found)


def credential_record(user: str, mechanism: int, found: StoredCredential) -> r.UserScramCredentialRecord:
    return r.UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=found.salt,
        stored_key=found.stored_key,
        server_key=found.server_key,
        iterations=found.iterations,
    )


class CredentialDeletion(NamedTuple):
    user: str
    mechanism: int


class CredentialUpsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"CredentialUpsertion({self.user!r}, {self.mechanism}, iterations={self.iterations})"


class CredentialResult(NamedTuple):
    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_credentials(
    credentials: Credentials, deletions: Sequence[CredentialDeletion], upsertions: Sequence[CredentialUpsertion]
) -> tuple[list[r.MetadataRecord], list[CredentialResult]]:
    """The records and one result per user. A user's changes are made all or not at all, as in Kafka."""
    named: dict[str, list[CredentialDeletion | CredentialUpsertion]] = {}
    wanted: list[CredentialDeletion | CredentialUpsertion] = [*deletions, *upsertions]
    for change in wanted:
        named.setdefault(change.user, []).append(change)
    records: list[r.MetadataRecord] = []
    results: list[CredentialResult] = []
    for user, changes in named.items():
        try:
            mechanisms = [change.mechanism for change in changes]
            if len(dict.fromkeys(mechanisms)) < len(mechanisms):
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            records += [_record_of(change, credentials) for change in changes]
            results.append(CredentialResult(user))
        except KafkaError as error:
            results.append(CredentialResult(user, error.code, error.message))
    return records, results


def _record_of(change: CredentialDeletion | CredentialUpsertion, credentials: Credentials) -> r.MetadataRecord:
    user, mechanism = change.user, change.mechanism
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(user) > USER_LETTERS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username is longer than {USER_LETTERS_MAX} letters")
    if mechanism not in SCRAM_HASHES:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, CredentialDeletion):
        if (user, mechanism) not in credentials:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return r.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salt or len(change.salt) > SALT_BYTES_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A salt has 1 to {SALT_BYTES_MAX} bytes")
    return credential_record(user, mechanism, stored(change))


def stored(change: CredentialUpsertion) -> StoredCredential:
    """What is kept of a salted password."""
    name = SCRAM_HASHES[change.mechanism]
    if len(change.salted_password) != hashlib.new(name).digest_size:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password has the wrong length")
    client_key = hmac.digest(change.salted_password, b"Client Key", name)
    server_key = hmac.digest(change.salted_password, b"Server Key", name)
    return StoredCredential(change.salt, hashlib.new(name, client_key).digest(), server_key, change.iterations)


def check_credential_record(record: r.UserScramCredentialRecord) -> None:
    """Raises KafkaError for a record that no controller writes."""
    if not record.name or record.mechanism not in SCRAM_HASHES or len(record.salt) > SALT_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an invalid SCRAM credential")
    size = hashlib.new(SCRAM_HASHES[record.mechanism]).digest_size
    if len(record.stored_key) != size or len(record.server_key) != size or not 0 < record.iterations <= 2**31 - 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an invalid SCRAM credential")
