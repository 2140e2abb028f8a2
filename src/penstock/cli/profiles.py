"""Connection profiles: named clusters, with the settings that reach them, in a file of the user's.

The file is `penstock/profiles.toml` below `$XDG_CONFIG_HOME` (normally `~/.config`). It may hold passwords, so it is
written readable by its owner only. It is plain TOML and may be edited by hand:

    current = "local"

    [profiles.local]
    bootstrap-server = "127.0.0.1:9092"

    [profiles.prod]
    bootstrap-server = "kafka-1:9093,kafka-2:9093"

    [profiles.prod.properties]
    "security.protocol" = "SASL_SSL"
    "sasl.password" = "…"
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.cli.suggestions import did_you_mean

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
HIDDEN = "********"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SECRET = re.compile(r"password|secret|token|jaas|credential|\.pem$", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A cluster: its addresses, and client settings in librdkafka's names."""

    bootstrap_server: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def masked(self) -> dict[str, str]:
        """The settings, with the values of secrets hidden."""
        return {name: HIDDEN if _SECRET.search(name) else value for name, value in self.properties.items()}


@dataclass(slots=True)
class Profiles:
    """All profiles of the user, and the one that commands use unless told otherwise."""

    current: str | None = None
    by_name: dict[str, Profile] = field(default_factory=dict)

    def get(self, name: str) -> Profile:
        if name not in self.by_name:
            raise CliError(
                f"there is no profile {name}{did_you_mean(name, self.by_name)}",
                exit_codes.NOT_FOUND,
                "`penstock profile list` shows the profiles, `penstock profile create` makes one",
            )
        return self.by_name[name]


def check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise CliError(
            f"{name!r} cannot be the name of a profile: use letters, digits, dots, hyphens and underscores",
            exit_codes.USAGE,
        )


def profiles_path() -> Path:
    """Where the profiles of this user are kept."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification says that a relative path is to be ignored.
    directory = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return directory / "penstock" / "profiles.toml"


def load_profiles() -> Profiles:
    """The user's profiles; none if there is no file."""
    path = profiles_path()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise CliError(f"cannot read the profiles in {path}: {error.strerror}", exit_codes.USAGE) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from None
    current, tables = document.get("current"), document.get("profiles", {})
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise _damaged(path, "`current` must be a text, and `profiles` a table")
    profiles = Profiles(current, {name: _profile(path, name, table) for name, table in tables.items()})
    if current is not None and current not in profiles.by_name:
        raise _damaged(path, f"the current profile {current} is not in the file")
    return profiles


def save_profiles(profiles: Profiles) -> None:
    """Replaces the file as a whole, so that a crash leaves the old one or the new one."""
    path = profiles_path()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_toml(profiles))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CliError(f"cannot write the profiles to {path}: {error.strerror}", exit_codes.FAILED) from None


def _profile(path: Path, name: str, table: object) -> Profile:
    address = table.get("bootstrap-server") if isinstance(table, dict) else None
    properties = table.get("properties", {}) if isinstance(table, dict) else None
    if not isinstance(address, str) or not isinstance(properties, dict):
        raise _damaged(path, f"the profile {name} needs a bootstrap-server, and its properties must be a table")
    return Profile(
        bootstrap_server=address,
        # Numbers and booleans are written as librdkafka reads them.
        properties={key: value if isinstance(value, str) else json.dumps(value) for key, value in properties.items()},
    )


def _damaged(path: Path, reason: str) -> CliError:
    return CliError(f"the profiles in {path} cannot be understood: {reason}", exit_codes.USAGE, "correct the file")


def _toml(profiles: Profiles) -> str:
    lines = [] if profiles.current is None else [f"current = {_quoted(profiles.current)}", ""]
    for name, profile in sorted(profiles.by_name.items()):
        lines += [f"[profiles.{_quoted(name)}]", f"bootstrap-server = {_quoted(profile.bootstrap_server)}", ""]
        if profile.properties:
            lines.append(f"[profiles.{_quoted(name)}.properties]")
            lines += [f"{_quoted(key)} = {_quoted(value)}" for key, value in sorted(profile.properties.items())]
            lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's escapes are among TOML's, but TOML wants DEL escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
