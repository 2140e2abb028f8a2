"""One ACL: its fields, its id and what makes it valid. The numbers are the protocol's."""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha256
from typing import Final, NamedTuple

from penstock.acls.hosts import check_host
from penstock.wire.acls import CLUSTER_NAME, Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError

ANY: Final = 1
"""In a filter: any resource type, pattern type, operation or permission."""
ALL: Final = 2
"""In an ACL: all operations."""
MATCH: Final = 2
"""In a filter: all patterns that apply to the resource of this name."""
ANY_NAME: Final = "*"
"""The literal name that stands for every resource of its type."""
ANY_PRINCIPAL: Final = "User:*"

NAME_LENGTH_MAX: Final = 1_024
PRINCIPAL_LENGTH_MAX: Final = 1_024
"""Long enough for the distinguished name of a certificate."""


class PatternType(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """Allows or denies a principal an operation on the resources that the pattern names."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        named = ResourceKind(self.resource_type).name
        pattern = "" if self.pattern_type == PatternType.LITERAL else "PREFIXED "
        return (
            f"{Permission(self.permission).name} {self.principal} from {self.host}: "
            f"{operation_name(self.operation)} on {named} {pattern}{self.resource_name}"
        )


def operation_name(operation: int) -> str:
    return "ALL" if operation == ALL else Operation(operation).name


def acl_id(acl: Acl) -> bytes:
    """The id of an ACL in the metadata log. It is computed from the content, so the same ACL is never stored twice."""
    texts = [text.encode("utf-8", "surrogatepass") for text in (acl.resource_name, acl.principal, acl.host)]
    numbers = bytes((acl.resource_type, acl.pattern_type, acl.operation, acl.permission))
    lengths = b"".join(len(text).to_bytes(4, "big") for text in texts)
    digest = bytearray(sha256(numbers + lengths + b"".join(texts)).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80  # version 8, a custom UUID (RFC 9562)
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)


def check_acl(acl: Acl) -> None:
    """Raises KafkaError(INVALID_REQUEST) for an ACL that cannot apply to anything, or is too long."""
    if acl.resource_type not in ResourceKind._value2member_map_:
        raise _invalid(f"Invalid resourceType {acl.resource_type}")
    if acl.pattern_type not in PatternType._value2member_map_:
        raise _invalid(f"Invalid patternType {acl.pattern_type}")
    if acl.operation != ALL and acl.operation not in Operation._value2member_map_:
        raise _invalid(f"Invalid operation {acl.operation}")
    if acl.permission not in Permission._value2member_map_:
        raise _invalid(f"Invalid permissionType {acl.permission}")
    if not acl.resource_name:
        raise _invalid("Resource name should not be empty")
    if len(acl.resource_name) > NAME_LENGTH_MAX:
        raise _invalid(f"The resource name is longer than {NAME_LENGTH_MAX} characters")
    if acl.resource_type == ResourceKind.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    _check_principal(acl.principal)
    try:
        check_host(acl.host)
    except ValueError as error:
        raise _invalid(f"Invalid host: {error}") from None
    for text in (acl.resource_name, acl.principal):
        if not text.isprintable():
            raise _invalid("Names and principals must not contain control characters")


def _check_principal(principal: str) -> None:
    kind, colon, name = principal.partition(":")
    if not colon or not kind or not name:
        raise _invalid(f"Could not parse principal from `{principal[:100]}`: write it as User:name")
    if len(principal) > PRINCIPAL_LENGTH_MAX:
        raise _invalid(f"The principal is longer than {PRINCIPAL_LENGTH_MAX} characters")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
