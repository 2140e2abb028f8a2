"""`ssl.principal.mapping.rules`: from a certificate's distinguished name to a user name.

    RULE:^CN=([^,]+),.*$/$1/L,DEFAULT

The first rule that matches the whole name applies. `$1` is a group of the pattern; `L` or `U` changes the case of the
result. `DEFAULT` takes the name as it is. No rule that matches is an error, as in Kafka, and ends the connection.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_GROUP = re.compile(r"\$(\d+)")


class Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: DEFAULT."""
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Raises ValueError, which names the wrong rule."""
    rules: list[Rule] = []
    rest = text.strip()
    while rest:
        if re.match(r"DEFAULT(?=,|$)", rest):
            rules.append(Rule(None))
            rest = rest[len("DEFAULT") :]
        elif found := _RULE.match(rest):
            try:
                rules.append(Rule(re.compile(found[1].replace(r"\/", "/")), found[2], found[3]))
            except re.error as error:
                raise ValueError(f"ssl.principal.mapping.rules: {found[0]!r} has a bad pattern: {error}") from None
            rest = rest[found.end() :]
        else:
            raise ValueError(f"ssl.principal.mapping.rules: {rest!r} is neither DEFAULT nor RULE:pattern/replacement/")
        rest = rest.strip()
        if rest and not rest.startswith(","):
            raise ValueError(f"ssl.principal.mapping.rules: a comma is missing before {rest!r}")
        rest = rest[1:].strip()
    return tuple(rules) or (Rule(None),)


def user_of(subject: str, rules: tuple[Rule, ...]) -> str | None:
    """The user's name; None if no rule matches."""
    for rule in rules:
        if rule.pattern is None:
            return subject
        found = rule.pattern.fullmatch(subject)
        if found is not None:
            name = _GROUP.sub(lambda group, found=found: _group(found, int(group[1])), rule.replacement)  # type: ignore[misc]
            return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
    return None


def _group(found: re.Match[str], number: int) -> str:
    return found[number] or "" if number <= (found.re.groups or 0) else ""
