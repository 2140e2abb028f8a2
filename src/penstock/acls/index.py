"""Finds the ACLs that apply to a resource: by name, by its prefixes and by `*`.

Every look-up is by key, so its cost does not grow with the number of ACLs. ACLs of the same pattern are kept by
principal. The prefixes of a name are tried by length, and only the lengths that some ACL has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.acls.rules import ANY_NAME, Acl, PatternType

ByPrincipal = dict[str, dict[bytes, Acl]]
"""Principal → id → ACL, for one pattern."""


class _Kind:
    """The ACLs for one type of resource."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, ByPrincipal] = {}
        self.prefixed: dict[str, ByPrincipal] = {}
        self.lengths: dict[int, int] = {}
        """Length of a prefix → how many prefixes have it."""


class AclIndex:
    def __init__(self, acls: Iterable[tuple[bytes, Acl]] = ()) -> None:
        self._kinds: dict[int, _Kind] = {}
        self._acls: dict[bytes, Acl] = {}
        for found_id, acl in acls:
            self.add(found_id, acl)

    def __len__(self) -> int:
        return len(self._acls)

    def add(self, found_id: bytes, acl: Acl) -> None:
        """Add an ACL, or replace the one with this id."""
        known = self._acls.get(found_id)
        if known == acl:
            return
        if known is not None:
            self.remove(found_id)
        self._acls[found_id] = acl
        kind = self._kinds.setdefault(acl.resource_type, _Kind())
        patterns = kind.prefixed if acl.pattern_type == PatternType.PREFIXED else kind.literal
        by_principal = patterns.get(acl.resource_name)
        if by_principal is None:
            by_principal = patterns[acl.resource_name] = {}
            if patterns is kind.prefixed:
                length = len(acl.resource_name)
                kind.lengths[length] = kind.lengths.get(length, 0) + 1
        by_principal.setdefault(acl.principal, {})[found_id] = acl

    def remove(self, found_id: bytes) -> None:
        """Remove the ACL with this id, if there is one."""
        acl = self._acls.pop(found_id, None)
        if acl is None:
            return
        kind = self._kinds[acl.resource_type]
        patterns = kind.prefixed if acl.pattern_type == PatternType.PREFIXED else kind.literal
        by_principal = patterns[acl.resource_name]
        del by_principal[acl.principal][found_id]
        if by_principal[acl.principal]:
            return
        del by_principal[acl.principal]
        if by_principal:
            return
        del patterns[acl.resource_name]
        if patterns is kind.prefixed:
            length = len(acl.resource_name)
            kind.lengths[length] -= 1
            if not kind.lengths[length]:
                del kind.lengths[length]

    def of_resource(self, resource_type: int, name: str) -> list[ByPrincipal]:
        """The patterns that apply to a resource: its own name first, then prefixes, then `*`."""
        kind = self._kinds.get(resource_type)
        if kind is None:
            return []
        found = [kind.literal[name]] if name in kind.literal else []
        prefixes = (name[:length] for length in kind.lengths if length <= len(name))
        found += [kind.prefixed[prefix] for prefix in prefixes if prefix in kind.prefixed]
        if name != ANY_NAME and (everything := kind.literal.get(ANY_NAME)) is not None:
            found.append(everything)
        return found

    def of_principals(self, resource_type: int, principals: tuple[str, ...]) -> Iterator[Acl]:
        """All ACLs of these principals for one type of resource."""
        kind = self._kinds.get(resource_type)
        if kind is None:
            return
        for patterns in (kind.literal, kind.prefixed):
            for by_principal in patterns.values():
                for principal in principals:
                    yield from by_principal.get(principal, {}).values()
