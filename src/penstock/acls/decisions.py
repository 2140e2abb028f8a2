"""Decides whether a principal may do something, and says why.

Answers are remembered by principal, host, operation and resource. Any change of an ACL forgets all of them: an answer
may depend on a rule that is far away (a DENY for a prefix, a `*`), and a stale ALLOW would be a hole.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from penstock.acls.hosts import host_matches
from penstock.acls.index import AclIndex
from penstock.acls.rules import ALL, ANY_NAME, ANY_PRINCIPAL, Acl, PatternType, Permission
from penstock.wire.acls import Operation, ResourceKind

REMEMBERED_MAX: Final = 50_000
"""Answers that are remembered. A client can ask for any number of names, so the memory is cleared when it is full."""

IMPLIED_BY: Final = {
    Operation.DESCRIBE: (ALL, Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""The operations whose ALLOW includes another one."""


class Reason(Enum):
    """The rule that decided."""

    SUPER_USER = "super user"
    ACL = "ACL"
    NO_ACL_FOUND = "allow.everyone.if.no.acl.found"
    DEFAULT = "no ACL allows it"
    NOT_LOADED = "ACLs are not loaded yet"


class Verdict(NamedTuple):
    allowed: bool
    reason: Reason
    acl: Acl | None = None
    """The deciding ACL, if there is one."""

    def __str__(self) -> str:
        return self.reason.value if self.acl is None else str(self.acl)


SUPER_USER: Final = Verdict(True, Reason.SUPER_USER)
NO_ACL_FOUND: Final = Verdict(True, Reason.NO_ACL_FOUND)
DEFAULT_DENY: Final = Verdict(False, Reason.DEFAULT)
NOT_LOADED: Final = Verdict(False, Reason.NOT_LOADED)

Question = tuple[str, str, str, int, int, str]
"""Kind and name of the principal, host, operation, resource type, resource name."""


class Decisions:
    """The ACLs of a cluster and the answers that follow from them."""

    def __init__(
        self,
        *,
        super_users: Iterable[str] = (),
        allow_if_no_acl_found: bool = False,
        index: AclIndex | None = None,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl_found = allow_if_no_acl_found
        self._index = index
        self._remembered: dict[Question, Verdict] = {}

    @property
    def is_loaded(self) -> bool:
        """Until the ACLs are loaded, only super users are allowed anything."""
        return self._index is not None

    @property
    def acl_count(self) -> int:
        return 0 if self._index is None else len(self._index)

    # ---- changes

    def configure(self, super_users: Iterable[str], allow_if_no_acl_found: bool) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl_found = allow_if_no_acl_found
        self._remembered = {}

    def load(self, acls: Iterable[tuple[bytes, Acl]]) -> None:
        """Replace all ACLs."""
        self._index = AclIndex(acls)
        self._remembered = {}

    def change(self, removed: Iterable[bytes], added: Iterable[tuple[bytes, Acl]]) -> None:
        index = self._index
        assert index is not None, "changes come after the first load"
        for found_id in removed:
            index.remove(found_id)
        for found_id, acl in added:
            index.add(found_id, acl)
        self._remembered = {}

    # ---- questions

    def decide(
        self, kind: str, name: str, host: str, operation: Operation, resource_type: ResourceKind, resource_name: str
    ) -> Verdict:
        """`kind` and `name` are the principal's, for example `User` and `alice`."""
        question = (kind, name, host, operation, resource_type, resource_name)
        verdict = self._remembered.get(question)
        if verdict is None:
            verdict = self._decide(f"{kind}:{name}", host, operation, resource_type, resource_name)
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered = {}
            self._remembered[question] = verdict
        return verdict

    def decide_somewhere(
        self, kind: str, name: str, host: str, operation: Operation, resource_type: ResourceKind
    ) -> bool:
        """Whether the operation is allowed on at least one possible resource of this type.

        As in Kafka: an ALLOW counts unless a DENY covers its whole pattern. `*` in Kafka's own check is any name.
        """
        principal = f"{kind}:{name}"
        if self.decide(kind, name, host, operation, resource_type, ANY_NAME).allowed:
            return True
        if self._index is None:
            return False
        allowed: list[Acl] = []
        denied: dict[tuple[int, str], None] = {}
        for acl in self._index.of_principals(resource_type, (principal, ANY_PRINCIPAL)):
            if acl.operation not in (operation, ALL) or not host_matches(acl.host, host):
                continue
            if acl.permission == Permission.ALLOW:
                allowed.append(acl)
            elif (acl.pattern_type, acl.resource_name) == (PatternType.LITERAL, ANY_NAME):
                return False
            else:
                denied[acl.pattern_type, acl.resource_name] = None
        return any(not _is_covered(acl, denied) for acl in allowed)

    def _decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceKind, resource_name: str
    ) -> Verdict:
        if principal in self._super_users:
            return SUPER_USER
        if self._index is None:
            return NOT_LOADED
        patterns = self._index.of_resource(resource_type, resource_name)
        if not patterns:
            return NO_ACL_FOUND if self._allow_if_no_acl_found else DEFAULT_DENY
        implied_by = IMPLIED_BY.get(operation, (ALL, operation))
        allowing: Acl | None = None
        principals = (principal,) if principal == ANY_PRINCIPAL else (principal, ANY_PRINCIPAL)
        for by_principal in patterns:
            for one in principals:
                for acl in by_principal.get(one, {}).values():
                    if acl.permission == Permission.DENY:
                        if acl.operation in (ALL, operation) and host_matches(acl.host, host):
                            return Verdict(False, Reason.ACL, acl)
                    elif allowing is None and acl.operation in implied_by and host_matches(acl.host, host):
                        allowing = acl
        return DEFAULT_DENY if allowing is None else Verdict(True, Reason.ACL, allowing)


def _is_covered(acl: Acl, denied: dict[tuple[int, str], None]) -> bool:
    """Whether a DENY covers everything that this ALLOW allows."""
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL:
        if name == ANY_NAME:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
