"""The authoriser that decides by ACLs (`authorizer.class.name`), and one that allows everything.

Start-up. A node has no ACLs until its image has caught up with the cluster; until then only `super.users` are allowed
anything, the other nodes included. A broker opens its listeners for clients after that (`penstock.broker.server`).
From then on every change of the image changes the ACLs here, before the request that caused it is answered.

Metadata that was rebuilt by `penstock metadata recover` may lack ACLs, and a DENY that is missing opens access. So the
authoriser stays closed, for everyone but super users, until the operator has removed `recovered.json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.acls import Decisions
from penstock.broker.net.access import ANONYMOUS
from penstock.config.access_table import principals_in
from penstock.telemetry.samples import Sample, counter, gauge

if TYPE_CHECKING:
    from penstock.broker.net.request import Request
    from penstock.config.access_table import Authorization
    from penstock.metadata import MetadataDelta, MetadataImage
    from penstock.wire.acls import Operation, ResourceKind

NO_AUTHORIZER: Final = "no authorizer is configured"


class AclAuthorizer:
    def __init__(self, config: Authorization) -> None:
        self.decisions = Decisions(
            super_users=principals_in(config.super_users),
            allow_if_no_acl_found=config.allow_everyone_if_no_acl_found,
        )
        self.is_closed = False
        """Whether the ACLs are not to be trusted, so that only super users are allowed anything."""
        self.denied = 0
        """Questions that were answered with no; those of lists that leave something out are among them."""

    def samples(self) -> Iterable[Sample]:
        yield gauge("penstock_acls", "ACLs in force on this node; 0 until they are loaded", self.decisions.acl_count)
        yield counter("penstock_authorization_denied_total", "Authorisations that were denied", self.denied)

    @property
    def has_acls(self) -> bool:
        return True

    def load(self, image: MetadataImage) -> None:
        """The image has caught up with the cluster: use its ACLs from now on."""
        if not self.is_closed:
            self.decisions.load(image.acls.items())

    async def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self.decisions.is_loaded:
            removed, added = delta.acls_removed, delta.acls_added
            if removed or added:
                self.decisions.change([found_id for found_id, _ in removed], added)

    def allows(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> bool:
        principal = request.client.principal or ANONYMOUS
        verdict = self.decisions.decide(principal.kind, principal.name, request.client.host, operation, kind, name)
        if not verdict.allowed:
            self.denied += 1
        return verdict.allowed

    def allows_somewhere(self, request: Request, operation: Operation, kind: ResourceKind) -> bool:
        principal = request.client.principal or ANONYMOUS
        return self.decisions.decide_somewhere(principal.kind, principal.name, request.client.host, operation, kind)

    def rule(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> str:
        principal = request.client.principal or ANONYMOUS
        return str(self.decisions.decide(principal.kind, principal.name, request.client.host, operation, kind, name))


class OpenAuthorizer:
    """Allows everything, for a node without ACLs that keeps an audit log."""

    has_acls = False

    def allows(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return True

    def allows_somewhere(self, request: Request, operation: Operation, kind: ResourceKind) -> bool:
        return True

    def rule(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> str:
        return NO_AUTHORIZER
