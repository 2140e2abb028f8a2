"""The registry of rules is complete, and says where each figure comes from."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import penstock.planning
from penstock.planning.catalogue import Catalogue, Rule
from penstock.planning.rules import RULES, SUBJECTS
from penstock.planning.values import VALUES

MODULES = [
    importlib.import_module(f"penstock.planning.{module.name}")
    for module in pkgutil.iter_modules(penstock.planning.__path__)
]


def test_every_rule_is_registered_once() -> None:
    defined = {
        id(thing): thing.name for module in MODULES for thing in vars(module).values() if isinstance(thing, Rule)
    }
    assert sorted(defined.values()) == sorted(RULES)
    assert sum(len(rules) for rules in SUBJECTS.values()) == len(RULES)


def test_every_value_belongs_to_a_rule_and_every_rule_names_values_that_exist() -> None:
    used = {name for rule in RULES.values() for name in rule.values}
    assert used == {value.name for value in VALUES}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_rule_has_a_source_a_formula_and_sentences(rule: Rule) -> None:
    assert rule.source.startswith(("000, ", "001, ", "002, ", "003, ", "004, ", "Penstock"))
    assert rule.formula
    assert rule.text.endswith(".")
    assert not rule.slip or rule.slip.endswith(".")
    assert all(name.isidentifier() and unit for name, unit in rule.inputs)


def test_values_are_within_their_own_bounds() -> None:
    assert len({value.name for value in VALUES}) == len(VALUES)
    for value in VALUES:
        assert value.minimum <= value.value <= value.maximum
        assert not value.whole or value.value == int(value.value)
    every = "\n".join(f"{value.name} = {value.value}" for value in VALUES)
    assert len(Catalogue().with_overrides(every).replaced) == len(VALUES)
