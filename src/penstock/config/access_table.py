"""Broker properties of access control and of the audit log."""

from __future__ import annotations

from typing import Final

from penstock.config.definitions import Importance, Kind, Validator, Value, at_least, between, one_of
from penstock.config.tables import Section, prop

BOOLEAN, STRING, INT, LONG, CLASS = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.CLASS
LOW = Importance.LOW

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUDIT_OFF, AUDIT_FILE = "none", "file"


def principals_in(text: str) -> tuple[str, ...]:
    """The principals of `super.users`. They are separated by semicolons, because names of certificates have commas."""
    return tuple(item.strip() for item in text.split(";") if item.strip())


def _are_principals(value: Value) -> bool:
    return isinstance(value, str) and all(
        all(part for part in principal.partition(":")) for principal in principals_in(value)
    )


class Authorization(Section, title="Authorisation"):
    """Who may do what."""

    authorizer_class_name: str = prop(
        "authorizer.class.name",
        STRING,
        "",
        Validator(
            f"empty, or {STANDARD_AUTHORIZER}: ACLs are the only authoriser, Java classes cannot be loaded",
            one_of("", STANDARD_AUTHORIZER).check,
        ),
        f"`{STANDARD_AUTHORIZER}` turns ACLs on: from then on everything is denied that no ACL allows, except to "
        "`super.users`. Empty: everything is allowed to everyone. Set it on all nodes of a cluster.",
        importance=LOW,
    )
    super_users: str = prop(
        "super.users",
        STRING,
        "",
        Validator("principals such as User:admin, separated by semicolons", _are_principals),
        "The principals that may do everything, as `User:admin;User:node`, separated by semicolons. The nodes of a "
        "cluster must be among them: until the ACLs are loaded nobody else is let in.",
    )
    allow_everyone_if_no_acl_found: bool = prop(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        None,
        "Whether everyone may do everything with a resource that has no ACL at all.",
    )


class Audit(Section, title="Audit log"):
    """What is recorded about who did what."""

    penstock_audit_destination: str = prop(
        "penstock.audit.destination",
        STRING,
        AUDIT_OFF,
        one_of(AUDIT_OFF, AUDIT_FILE),
        "`file` writes every administrative action, every denied access and every login to `audit/audit.jsonl` in the "
        "data directory, one JSON object per line. `none` writes nothing.",
    )
    penstock_audit_data_access: bool = prop(
        "penstock.audit.data.access",
        BOOLEAN,
        False,
        None,
        "Whether allowed reads, writes and descriptions are recorded too. Identical accesses of one moment are one "
        "line with a count.",
    )
    penstock_audit_file_max_bytes: int = prop(
        "penstock.audit.file.max.bytes",
        LONG,
        104_857_600,
        at_least(65_536),
        "The size at which the file is renamed to `audit.jsonl.1`, and a new one is begun.",
    )
    penstock_audit_file_max_count: int = prop(
        "penstock.audit.file.max.count",
        INT,
        10,
        between(1, 1_000),
        "How many renamed files are kept. The oldest is deleted.",
    )
