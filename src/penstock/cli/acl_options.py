"""The options of `penstock acls`, which are those of kafka-acls, and the ACLs that they mean.

`--producer`, `--consumer` and `--idempotent` stand for the ACLs that such a client needs:

| option | on | operations |
|---|---|---|
| `--producer` | `--topic` | WRITE, DESCRIBE, CREATE |
| | `--transactional-id` | WRITE, DESCRIBE |
| `--idempotent` | the cluster | IDEMPOTENT_WRITE |
| `--consumer` | `--topic` | READ, DESCRIBE |
| | `--group` | READ |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.acls import ALL, ANY, ANY_HOST, MATCH, Acl, AclFilter, PatternType, Permission
from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.wire.acls import CLUSTER_NAME, Operation, ResourceKind

PATTERNS = {"literal": int(PatternType.LITERAL), "prefixed": int(PatternType.PREFIXED), "any": ANY, "match": MATCH}
OPTION_OF = {
    ResourceKind.TOPIC: "--topic",
    ResourceKind.GROUP: "--group",
    ResourceKind.CLUSTER: "--cluster",
    ResourceKind.TRANSACTIONAL_ID: "--transactional-id",
    ResourceKind.DELEGATION_TOKEN: "--delegation-token",
    ResourceKind.USER: "--user-principal",
}


class Resource(NamedTuple):
    kind: ResourceKind
    name: str


class Asked(NamedTuple):
    """What the options say about resources and what may be done with them."""

    resources: list[Resource]
    operations: list[int]
    pattern: int
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def is_convenient(self) -> bool:
        return self.producer or self.consumer or self.idempotent

    def grants(self) -> list[tuple[Resource, int]]:
        """(resource, operation) of each ACL. Raises CliError."""
        if self.operations and self.is_convenient:
            raise CliError(
                "--operation cannot be combined with --producer, --consumer or --idempotent", exit_codes.USAGE
            )
        if self.is_convenient:
            return list(dict.fromkeys(self._convenient()))
        return [(resource, operation) for resource in self.resources for operation in self.operations or [ALL]]

    def _convenient(self) -> Iterable[tuple[Resource, int]]:
        topics, groups, ids = (
            self._of(kind) for kind in (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID)
        )
        if self.producer:
            if not topics:
                raise CliError("--producer needs at least one --topic", exit_codes.USAGE)
            yield from _each(topics, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
            yield from _each(ids, Operation.WRITE, Operation.DESCRIBE)
        if self.consumer:
            if not topics or not groups:
                raise CliError("--consumer needs at least one --topic and one --group", exit_codes.USAGE)
            yield from _each(topics, Operation.READ, Operation.DESCRIBE)
            yield from _each(groups, Operation.READ)
        if self.idempotent:
            yield Resource(ResourceKind.CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE

    def _of(self, kind: ResourceKind) -> list[Resource]:
        return [resource for resource in self.resources if resource.kind is kind]


def _each(resources: Iterable[Resource], *operations: Operation) -> Iterable[tuple[Resource, int]]:
    return [(resource, operation) for resource in resources for operation in operations]


def resources_of(
    topic: list[str] | None,
    group: list[str] | None,
    cluster: bool,
    transactional_id: list[str] | None,
    delegation_token: list[str] | None,
    user_principal: list[str] | None,
) -> list[Resource]:
    return [
        *(Resource(ResourceKind.TOPIC, name) for name in topic or ()),
        *(Resource(ResourceKind.GROUP, name) for name in group or ()),
        *([Resource(ResourceKind.CLUSTER, CLUSTER_NAME)] if cluster else ()),
        *(Resource(ResourceKind.TRANSACTIONAL_ID, name) for name in transactional_id or ()),
        *(Resource(ResourceKind.DELEGATION_TOKEN, name) for name in delegation_token or ()),
        *(Resource(ResourceKind.USER, name) for name in user_principal or ()),
    ]


def operation_of(text: str) -> int:
    """By Kafka's names in any form: READ, Read, AlterConfigs, alter_configs."""
    wanted = text.replace("_", "").replace("-", "").lower()
    if wanted == "all":
        return ALL
    for operation in Operation:
        if operation.name.replace("_", "").lower() == wanted:
            return operation
    names = ", ".join(["ALL", *(operation.name for operation in Operation)])
    raise CliError(f"{text!r} is not an operation", exit_codes.USAGE, f"the operations are {names}")


def pattern_of(text: str, *allowed: str) -> int:
    if text.lower() not in allowed:
        raise CliError(f"{text!r} is not a pattern type", exit_codes.USAGE, f"use {', '.join(allowed)}")
    return PATTERNS[text.lower()]


def acls_of(
    asked: Asked,
    allow: list[str] | None,
    deny: list[str] | None,
    allow_host: list[str] | None,
    deny_host: list[str] | None,
) -> list[Acl]:
    """The ACLs to create. Raises CliError."""
    if not allow and not deny:
        raise CliError(
            "whom? name a principal with --allow-principal or --deny-principal", exit_codes.USAGE, "as in User:alice"
        )
    if asked.is_convenient and deny:
        raise CliError("--producer, --consumer and --idempotent allow; they do not deny", exit_codes.USAGE)
    grants = asked.grants()
    if not grants:
        raise CliError("on what? name a resource", exit_codes.USAGE, f"with {', '.join(OPTION_OF.values())}")
    return [
        Acl(resource.kind, resource.name, _pattern(asked, resource), principal, host, operation, permission)
        for permission, principals, hosts in (
            (Permission.ALLOW, allow, allow_host),
            (Permission.DENY, deny, deny_host),
        )
        for principal in principals or ()
        for host in hosts or [ANY_HOST]
        for resource, operation in grants
    ]


def filters_of(
    asked: Asked,
    allow: list[str] | None,
    deny: list[str] | None,
    allow_host: list[str] | None,
    deny_host: list[str] | None,
) -> list[AclFilter]:
    """The ACLs to delete: what is not named is any. Raises CliError."""
    if not asked.resources and not asked.is_convenient:
        raise CliError("on what? name a resource", exit_codes.USAGE, f"with {', '.join(OPTION_OF.values())}")
    grants: list[tuple[Resource, int]] = (
        asked.grants()
        if asked.is_convenient
        else [(resource, operation) for resource in asked.resources for operation in asked.operations or [ANY]]
    )
    rules: list[tuple[int, str | None, str | None]] = [
        (permission, principal, host)
        for permission, principals, hosts in (
            (Permission.ALLOW, allow, allow_host),
            (Permission.DENY, deny, deny_host),
        )
        for principal in principals or ()
        for host in (hosts if hosts else (None,))
    ]
    return [
        AclFilter(resource.kind, resource.name, _pattern(asked, resource), principal, host, operation, permission)
        for permission, principal, host in rules or [(ANY, None, None)]
        for resource, operation in grants
    ]


def _pattern(asked: Asked, resource: Resource) -> int:
    """The cluster has one name, which is always literal."""
    return PatternType.LITERAL if resource.kind is ResourceKind.CLUSTER else asked.pattern
