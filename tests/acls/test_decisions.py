"""What ACLs decide: Kafka's rules one by one, and the index and its memory against a list that is searched from end to
end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.acls import ALL, ANY_NAME, Acl, AclIndex, Decisions, PatternType, Permission, Reason, acl_id, host_matches
from penstock.wire.acls import Operation, ResourceKind

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(
    name: str = "orders",
    pattern: int = LITERAL,
    *,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = READ,
    permission: int = ALLOW,
    kind: int = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def deciding(*acls: Acl, **options: Any) -> Decisions:
    return Decisions(index=AclIndex((acl_id(one), one) for one in acls), **options)


def may(
    decisions: Decisions, operation: Operation = READ, name: str = "orders", user: str = "alice", host: str = "10.1.2.3"
) -> bool:
    return decisions.decide("User", user, host, operation, TOPIC, name).allowed


# -- Kafka's rules -----------------------------------------------------------------------------------------------------


def test_without_an_acl_nothing_is_allowed() -> None:
    verdict = deciding().decide("User", "alice", "h", READ, TOPIC, "orders")
    assert (verdict.allowed, verdict.reason) == (False, Reason.DEFAULT)


def test_an_acl_allows_its_principal_its_operation_on_its_resource_only() -> None:
    decisions = deciding(acl())
    assert may(decisions)
    assert not may(decisions, WRITE)
    assert not may(decisions, name="orders2")
    assert not may(decisions, user="bob")
    assert not decisions.decide("User", "alice", "h", READ, GROUP, "orders").allowed
    assert not decisions.decide("Group", "alice", "h", READ, TOPIC, "orders").allowed


@pytest.mark.parametrize(
    ("name", "pattern", "covered"),
    [
        ("ord", PREFIXED, True),
        ("orders", PREFIXED, True),
        ("orders.", PREFIXED, False),
        ("ord", LITERAL, False),
        (ANY_NAME, LITERAL, True),
        (ANY_NAME, PREFIXED, False),
    ],
)
def test_patterns(name: str, pattern: int, covered: bool) -> None:
    assert may(deciding(acl(name, pattern))) is covered


@pytest.mark.parametrize(
    "denying", [acl(permission=DENY), acl("o", PREFIXED, permission=DENY), acl("*", permission=DENY)]
)
@pytest.mark.parametrize("allowing", [acl(), acl("ord", PREFIXED), acl("*"), acl(principal="User:*")])
def test_a_deny_wins_over_every_allow(denying: Acl, allowing: Acl) -> None:
    for order in ((denying, allowing), (allowing, denying)):
        verdict = deciding(*order).decide("User", "alice", "h", READ, TOPIC, "orders")
        assert (verdict.allowed, verdict.acl) == (False, denying)
    assert may(deciding(allowing, denying._replace(host="192.0.2.1")))


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, ALL])
def test_some_operations_include_describe_but_their_denial_does_not(operation: int) -> None:
    assert may(deciding(acl(operation=operation)), DESCRIBE)
    denied = deciding(acl(operation=operation, permission=DENY), acl(operation=DESCRIBE))
    assert may(denied, DESCRIBE) is (operation != ALL)


def test_altering_configs_includes_describing_them_and_not_more() -> None:
    decisions = deciding(acl(operation=Operation.ALTER_CONFIGS))
    assert may(decisions, Operation.DESCRIBE_CONFIGS)
    assert not may(decisions, DESCRIBE)
    assert not may(deciding(acl(operation=Operation.DESCRIBE_CONFIGS)), Operation.ALTER_CONFIGS)


def test_super_users_may_do_everything_even_what_is_denied() -> None:
    decisions = deciding(acl("*", principal="User:*", operation=ALL, permission=DENY), super_users=["User:root"])
    assert may(decisions, WRITE, "anything", "root")
    assert not may(decisions, WRITE, "anything", "Root")
    assert decisions.decide_somewhere("User", "root", "h", WRITE, TOPIC)


def test_before_acls_are_loaded_only_super_users_pass() -> None:
    decisions = Decisions(super_users=["User:root"], allow_if_no_acl_found=True)
    assert may(decisions, user="root")
    assert decisions.decide("User", "alice", "h", READ, TOPIC, "t").reason is Reason.NOT_LOADED
    assert not decisions.decide_somewhere("User", "alice", "h", READ, TOPIC)
    decisions.load([(acl_id(acl()), acl())])
    assert may(decisions)


def test_everyone_is_allowed_what_has_no_acl_at_all_if_the_operator_says_so() -> None:
    decisions = deciding(acl("secret", principal="User:bob"), allow_if_no_acl_found=True)
    assert may(decisions, name="other")
    assert not may(decisions, name="secret"), "an ACL of somebody else is one"
    assert not may(deciding(acl("s", PREFIXED, principal="User:bob"), allow_if_no_acl_found=True), name="secret")


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl(operation=WRITE)], True),
        ([acl(operation=WRITE, principal="User:*")], True),
        ([acl(operation=WRITE, principal="User:bob")], False),
        ([acl(operation=WRITE, host="192.0.2.1")], False),
        ([acl(operation=READ)], False),
        ([acl(operation=WRITE), acl(operation=ALL, permission=DENY)], False),
        ([acl(operation=WRITE), acl("o", PREFIXED, operation=WRITE, permission=DENY)], False),
        ([acl("o", PREFIXED, operation=WRITE), acl(operation=WRITE, permission=DENY)], True),
        ([acl("*", operation=WRITE), acl("o", PREFIXED, operation=WRITE, permission=DENY)], True),
        ([acl("*", operation=WRITE), acl("*", operation=WRITE, permission=DENY)], False),
        ([acl("o", PREFIXED, operation=WRITE), acl("or", PREFIXED, operation=WRITE, permission=DENY)], True),
    ],
)
def test_somewhere_means_an_allow_that_no_deny_covers(acls: list[Acl], allowed: bool) -> None:
    assert deciding(*acls).decide_somewhere("User", "alice", "10.1.2.3", WRITE, TOPIC) is allowed


# -- hosts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "host", "covered"),
    [
        ("*", "", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.30", False),
        ("10.1.0.0/16", "10.1.255.1", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("0.0.0.0/0", "::1", False),
        ("::/0", "2001:db8::1", True),
        ("2001:db8::/32", "2001:db8:1::9", True),
        ("2001:db8::1", "2001:0db8:0::0001", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("10.0.0.0/8", "", False),
        ("10.0.0.0/8", "example.com", False),
        ("nonsense", "10.1.2.3", False),
    ],
)
def test_hosts_and_ranges(pattern: str, host: str, covered: bool) -> None:
    assert host_matches(pattern, host) is covered


# -- against a model ---------------------------------------------------------------------------------------------------

NAMES = ("a", "ab", "abc", "b", "*")
ACLS = st.builds(
    acl,
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.0/24"]),
    operation=st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALTER, ALL]),
    permission=st.sampled_from([ALLOW, ALLOW, DENY]),
    kind=st.sampled_from([TOPIC, GROUP]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["alice", "bob", "root", "*"]),
    st.sampled_from(["10.0.0.1", "10.0.0.9", "10.9.9.9"]),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALTER]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["a", "ab", "abcd", "b", "c"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), ACLS),
        st.tuples(st.just("remove"), ACLS),
        st.tuples(st.just("remove any"), st.integers(0, 50)),
        st.tuples(st.just("replace all"), st.lists(ACLS, max_size=5)),
        st.tuples(st.just("ask"), QUESTIONS),
    ),
    max_size=60,
)
IMPLY_DESCRIBE = (READ, WRITE, Operation.DELETE, Operation.ALTER)


def model(acls: list[Acl], question: tuple[str, str, Operation, ResourceKind, str], lenient: bool) -> bool:
    """Every ACL is looked at, for every question."""
    user, host, operation, kind, name = question
    if user == "root":
        return True
    found = [one for one in acls if one.resource_type == kind and covers(one, name)]
    if not found:
        return lenient
    mine = [one for one in found if one.principal in (f"User:{user}", "User:*") and host_matches(one.host, host)]
    if any(one.permission == DENY and one.operation in (operation, ALL) for one in mine):
        return False
    implied = (operation, ALL, *(IMPLY_DESCRIBE if operation == DESCRIBE else ()))
    return any(one.permission == ALLOW and one.operation in implied for one in mine)


def covers(one: Acl, name: str) -> bool:
    if one.pattern_type == PREFIXED:
        return name.startswith(one.resource_name)
    return one.resource_name in (name, "*")


@settings(max_examples=300)
@given(STEPS, st.lists(QUESTIONS, min_size=1, max_size=8), st.booleans())
def test_every_answer_is_the_models_whatever_was_added_removed_and_asked_before(
    steps: list[tuple[str, Any]], questions: list[Any], lenient: bool
) -> None:
    """After every step the same questions are asked, so that an answer which outlives its reason is seen: an ALLOW that
    is remembered after a DENY was added, or a DENY that is forgotten when another rule is removed."""
    decisions = deciding(super_users=["User:root"], allow_if_no_acl_found=lenient)
    held: dict[bytes, Acl] = {}
    for step, given_ in steps:
        match step:
            case "add":
                held[acl_id(given_)] = given_
                decisions.change([], [(acl_id(given_), given_)])
            case "remove":
                held.pop(acl_id(given_), None)
                decisions.change([acl_id(given_)], [])
            case "remove any" if held:
                gone = list(held)[given_ % len(held)]
                del held[gone]
                decisions.change([gone], [])
            case "replace all":
                held = {acl_id(one): one for one in given_}
                decisions.load(held.items())
        asked = [*questions, given_] if step == "ask" else questions
        for user, host, operation, kind, name in asked:
            verdict = decisions.decide("User", user, host, operation, kind, name)
            expected = model(list(held.values()), (user, host, operation, kind, name), lenient)
            assert verdict.allowed is expected, (user, host, operation.name, kind.name, name, list(held.values()))
            assert verdict.acl is None or verdict.acl in held.values()
        assert decisions.acl_count == len(held)


def test_a_deny_is_not_forgotten_when_another_rule_is_removed() -> None:
    denying, other = acl("ord", PREFIXED, permission=DENY), acl("ord", PREFIXED, operation=WRITE)
    decisions = deciding(acl(), denying, other)
    assert not may(decisions)
    decisions.change([acl_id(other)], [])
    assert not may(decisions)
    decisions.change([acl_id(denying)], [])
    assert may(decisions)


def test_the_memory_of_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.acls.decisions.REMEMBERED_MAX", 100)
    decisions = deciding(acl("*"))
    for number in range(1_000):
        assert may(decisions, name=f"t{number}")
        assert len(decisions._remembered) <= 100
