"""Filters: which ACLs DescribeAcls shows and DeleteAcls deletes."""

from __future__ import annotations

from typing import NamedTuple

from penstock.acls.rules import ALL, ANY, ANY_NAME, MATCH, Acl, PatternType, Permission
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError


class AclFilter(NamedTuple):
    """The fields of an ACL; ANY and None select every value."""

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.permission in (ANY, acl.permission)
            and self.operation in (ANY, acl.operation)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type != MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, ANY_NAME)

    @property
    def exactly(self) -> Acl | None:
        """The only ACL that it can match; None if it may match several."""
        if (
            self.resource_type == ANY
            or self.resource_name is None
            or self.pattern_type in (ANY, MATCH)
            or self.principal is None
            or self.host is None
            or ANY in (self.operation, self.permission)
        ):
            return None
        return Acl(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )


def checked_filter(found: AclFilter) -> AclFilter:
    """The filter itself. Raises KafkaError(INVALID_REQUEST) if it has a number that nobody knows."""
    if (
        (found.resource_type != ANY and found.resource_type not in ResourceKind._value2member_map_)
        or (found.pattern_type not in (ANY, MATCH) and found.pattern_type not in PatternType._value2member_map_)
    ):  # fmt: skip
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if (
        (found.operation not in (ANY, ALL) and found.operation not in Operation._value2member_map_)
        or (found.permission != ANY and found.permission not in Permission._value2member_map_)
    ):  # fmt: skip
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return found
