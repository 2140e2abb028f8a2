"""Profiles: which cluster a command talks to, and what is kept on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.running import Run
from penstock.cli import exit_codes
from penstock.cli.cluster_choice import VARIABLE, choose
from penstock.cli.connection import Cluster
from penstock.cli.profiles import HIDDEN, Profile, Profiles, load_profiles, profiles_path, save_profiles

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def prod(run: Run) -> None:
    assert run("profile", "create", "prod", "-b", "prod:9093", "-X", "sasl.password=geheim").code == 0


@pytest.mark.usefixtures("prod")
def test_the_flag_is_stronger_than_the_file_and_the_file_than_the_environment(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv(VARIABLE, "environment:9092")
    assert choose("flag:9092", None) == "flag:9092"
    assert choose(None, None) == "prod:9093"
    assert run("profile", "use", "--none").code == 0
    assert choose(None, None) == "environment:9092"
    assert choose(None, "prod") == "prod:9093"
    monkeypatch.delenv(VARIABLE)
    assert choose(None, None) == "127.0.0.1:9092"


@pytest.mark.usefixtures("prod")
def test_a_password_is_never_sent_to_another_cluster() -> None:
    assert choose("flag:9092", None).properties == {}
    assert Cluster(choose(None, None), None, 1).properties == {"sasl.password": "geheim"}
    # Both named: the profile's settings for another address of its cluster.
    both = choose("flag:9092", "prod")
    assert both == "flag:9092"
    assert both.properties == {"sasl.password": "geheim"}


@pytest.mark.usefixtures("prod")
def test_a_file_of_settings_is_stronger_than_the_profile(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=other\n")
    assert Cluster(choose(None, None), file, 1).properties == {"sasl.password": "other"}


def test_the_chosen_cluster_is_told_on_standard_error_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("profile", "create", "gone", "--bootstrap-server", NOWHERE)
    result = run("topics", "list")
    assert result.messages.startswith(f"cluster: {NOWHERE} (profile gone)\n")
    result = run("topics", "list", "--json")
    assert result.output == ""
    told, failed = map(json.loads, result.messages.splitlines())
    assert told == {"note": f"cluster: {NOWHERE} (profile gone)"}
    assert failed["error"]["code"] == exit_codes.UNREACHABLE
    assert "cluster:" not in run("topics", "list", "--bootstrap-server", NOWHERE).messages
    run("profile", "use", "--none")
    monkeypatch.setenv(VARIABLE, NOWHERE)
    assert run("topics", "list").messages.startswith(f"cluster: {NOWHERE} ({VARIABLE})\n")


@pytest.mark.usefixtures("prod")
def test_only_the_owner_can_read_the_file(run: Run) -> None:
    assert profiles_path().stat().st_mode & 0o777 == 0o600
    profiles_path().chmod(0o644)
    run("profile", "create", "more", "-b", "x")
    assert profiles_path().stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("prod")
def test_secrets_are_never_shown(run: Run) -> None:
    for command in (("show",), ("show", "prod"), ("list",)):
        for form in ((), ("--json",)):
            result = run("profile", *command, *form)
            assert result.code == exit_codes.OK
            assert "prod" in result.output
            assert "geheim" not in result.output + result.messages
    assert json.loads(run("profile", "show", "--json").output)["properties"] == {"sasl.password": HIDDEN}


def test_the_first_profile_is_current_and_others_on_request(run: Run) -> None:
    assert "made it current" in run("profile", "create", "a", "-b", "a:1").output
    assert run("profile", "create", "b", "-b", "b:1").output == "created the profile b\n"
    assert load_profiles().current == "a"
    assert run("profile", "use", "b").code == exit_codes.OK
    assert load_profiles().current == "b"
    assert run("profile", "create", "c", "-b", "c:1", "--use").code == exit_codes.OK
    assert [row["current"] for row in json.loads(run("profile", "list", "--json").output)] == [False, False, True]
    assert run("profile", "delete", "c").code == exit_codes.USAGE
    assert run("profile", "delete", "c", "--yes").code == exit_codes.OK
    assert load_profiles().current is None


@pytest.mark.usefixtures("prod")
def test_mistakes_with_profiles(run: Run) -> None:
    result = run("topics", "list", "--profile", "prd")
    assert result.code == exit_codes.NOT_FOUND
    assert "there is no profile prd; did you mean prod?" in result.messages
    assert run("profile", "use", "prd").code == exit_codes.NOT_FOUND
    assert run("profile", "use").code == exit_codes.USAGE
    assert run("profile", "create", "prod", "-b", "x").code == exit_codes.ALREADY_EXISTS
    assert run("profile", "create", "prod", "-b", "x", "--replace").code == exit_codes.OK
    assert run("profile", "create", "a b", "-b", "x").code == exit_codes.USAGE
    assert run("profile", "create", "x").code == exit_codes.USAGE


@pytest.mark.parametrize(
    "text", ["current = 1", "[profiles.a]", "current = 'b'\n[profiles.a]\nbootstrap-server='x'", "["]
)
def test_a_file_that_cannot_be_understood_is_told_with_its_name(run: Run, text: str) -> None:
    profiles_path().parent.mkdir()
    profiles_path().write_text(text)
    result = run("topics", "list")
    assert result.code == exit_codes.USAGE
    assert str(profiles_path()) in result.messages


def test_a_profile_takes_over_the_settings_of_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.username=me\n")
    run("profile", "create", "a", "-b", "a:1", "--command-config", file, "-X", "sasl.username=you")
    assert load_profiles().by_name["a"].properties == {"security.protocol": "SASL_SSL", "sasl.username": "you"}


texts = st.text(st.characters(codec="utf-8"), min_size=1)


@given(st.dictionaries(texts, st.tuples(texts, st.dictionaries(texts, texts)), max_size=3))
def test_what_is_saved_is_what_is_read(written: dict[str, tuple[str, dict[str, str]]]) -> None:
    by_name = {name: Profile(bootstrap_server=address, properties=more) for name, (address, more) in written.items()}
    save_profiles(Profiles(next(iter(by_name), None), by_name))
    assert load_profiles() == Profiles(next(iter(by_name), None), by_name)
