"""Access control lists: what an ACL says, which ACLs a filter selects, and what a set of ACLs decides. Pure.

An ACL allows or denies one principal one operation on the resources that a pattern names:

    ALLOW User:alice, from any host, READ on topics whose names begin with "orders."

The rules are those of Kafka's StandardAuthorizer:

1. Super users may do everything.
2. An ACL applies if its principal is the client's or `User:*`, its host is the client's or `*`, and its resource
   pattern is the resource's name, a prefix of it, or `*`.
3. A DENY that applies wins over every ALLOW.
4. READ, WRITE, DELETE and ALTER include DESCRIBE; ALTER_CONFIGS includes DESCRIBE_CONFIGS. Only an ALLOW includes them.
5. Otherwise the answer is no. `allow.everyone.if.no.acl.found` changes that for resources without any ACL.

One rule is ours: the host of an ACL may also be a range of addresses in CIDR notation, such as 10.1.0.0/16 (`hosts`).

Modules: `rules` (an ACL and its validation), `hosts`, `filters` (DescribeAcls and DeleteAcls), `index` (finds the ACLs
of a resource quickly), `decisions` (the answer with its reason, remembered until an ACL changes).
"""

from penstock.acls.decisions import Decisions, Reason, Verdict
from penstock.acls.filters import AclFilter, checked_filter
from penstock.acls.hosts import ANY_HOST, check_host, host_matches
from penstock.acls.index import AclIndex
from penstock.acls.rules import (
    ALL,
    ANY,
    ANY_NAME,
    ANY_PRINCIPAL,
    MATCH,
    Acl,
    PatternType,
    Permission,
    acl_id,
    check_acl,
    operation_name,
)

__all__ = [
    "ALL",
    "ANY",
    "ANY_HOST",
    "ANY_NAME",
    "ANY_PRINCIPAL",
    "MATCH",
    "Acl",
    "AclFilter",
    "AclIndex",
    "Decisions",
    "PatternType",
    "Permission",
    "Reason",
    "Verdict",
    "acl_id",
    "check_acl",
    "check_host",
    "checked_filter",
    "host_matches",
    "operation_name",
]
