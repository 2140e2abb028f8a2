"""`penstock server` and `penstock up`: their two parsers, and what they refuse before a broker starts."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from cli.running import Run
from penstock.cli import app as full_parser
from penstock.cli import exit_codes, server
from penstock.cli.commands import Commands
from penstock.cli.fleet import REPEATS_SHOWN, RepeatFolder, ports_in_use
from penstock.cli.server_options import LogFormat, Option, ServerOptions, UpOptions, declared, parse
from penstock.runtime.exits import EXIT_CONFIG, EXIT_UNAVAILABLE


def command_lines(options: type[Any]) -> st.SearchStrategy[list[str]]:
    """Command lines that are right, or nearly."""
    text = st.sampled_from(["a", "0", "7", "99", "100", "-1", "x=y", "", "text", "json", "--data", "65536", "٣"])

    def words(item: tuple[str, tuple[str, Option, object]]) -> st.SearchStrategy[list[str]]:
        name, (_, option, _) = item
        if option.kind is bool:
            return st.just([name])
        return text.flatmap(lambda value: st.sampled_from([[name, value], [f"{name}={value}"]]))

    one = st.sampled_from(list(declared(options).items())).flatmap(words)
    other = st.sampled_from([["--help"], ["--dta", "x"], ["word"], ["--"]])
    return st.lists(st.one_of(one, one, one, other), max_size=4).map(lambda parts: [w for part in parts for w in part])


def parse_fully(options: type[Any], arguments: list[str]) -> object:
    """The options as the parser of all commands reads them; None if it refuses the line or explains the command."""
    seen: list[object] = []
    application = Commands()
    full_parser.declare_command(application, "it", options, lambda value: (seen.append(value), 0)[1], "", "")
    application.command("other")(lambda: None)
    try:
        application(args=["it", *arguments], standalone_mode=False, prog_name="penstock")
    except typer.TyperException:
        return None
    return seen[0] if seen else None


@pytest.mark.parametrize("options", [ServerOptions, UpOptions])
def test_what_the_light_parser_reads_is_what_the_full_one_reads(options: type[Any], monkeypatch: Any) -> None:
    @given(command_lines(options))
    def check(arguments: list[str]) -> None:
        light = parse(options, arguments)
        if light is not None:
            assert light == parse_fully(options, arguments)

    check()


def test_an_ordinary_command_line_needs_the_light_parser_only() -> None:
    words = ["--data", "d", "--set", "a=b", "--set=c=d", "--node-id", "3", "--log-format", "json", "--json"]
    assert parse(ServerOptions, words) == ServerOptions(
        data="d", set=("a=b", "c=d"), node_id=3, log_format=LogFormat.JSON, json=True
    )
    assert parse(UpOptions, ["--brokers", "3", "--restart"]) == UpOptions(brokers=3, restart=True)
    assert parse(UpOptions, []) == UpOptions()


@pytest.mark.parametrize("command", ["server", "up"])
def test_a_mistyped_property_is_refused_with_the_nearest(run: Run, tmp_path: Path, command: str) -> None:
    result = run(command, "--data", tmp_path / "data", "--set", "num.partition=3")
    assert result.code == EXIT_CONFIG
    assert "num.partition is not a property of a broker; did you mean num.partitions?" in result.messages
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hour=1\n")
    result = run(command, "--data", tmp_path / "data", "--config", file)
    assert "did you mean log.retention.hours?" in result.messages
    assert not (tmp_path / "data").exists()


def test_a_property_that_is_like_no_other_is_left_to_the_broker_to_warn_about() -> None:
    assert server.given_settings(None, ["company.auditor.address=x"]) == {"company.auditor.address": "x"}


@pytest.mark.parametrize("command", [("server",), ("up",), ("up", "--brokers", "3")], ids=" ".join)
def test_a_missing_configuration_file_is_a_sentence(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    result = run(*command, "--config", tmp_path / "none.properties", "--data", tmp_path / "data")
    assert result.code == EXIT_CONFIG
    assert result.messages == (
        f"penstock: the file {tmp_path / 'none.properties'}, given with --config, cannot be read: "
        "No such file or directory\n"
    )


def test_refusals_are_json_on_request(run: Run, tmp_path: Path) -> None:
    result = run("up", "--json", "--config", tmp_path / "none.properties")
    assert json.loads(result.messages)["error"]["code"] == EXIT_CONFIG


@pytest.fixture
def three_nodes(tmp_path: Path) -> Path:
    for number in (1, 2, 3):
        (tmp_path / f"node-{number}").mkdir()
        (tmp_path / f"node-{number}" / "meta.properties").write_text("")
    return tmp_path


def test_a_directory_with_three_nodes_is_recognised(run: Run, three_nodes: Path) -> None:
    for brokers in (1, 2, 5):
        result = run("up", "--data", three_nodes, "--brokers", brokers)
        assert result.code == EXIT_CONFIG
        assert f"{three_nodes} holds 3 nodes: use --brokers 3" in result.messages
    result = run("server", "--data", three_nodes)
    assert result.code == EXIT_CONFIG
    assert f"--data {three_nodes / 'node-1'}" in result.messages


def test_a_directory_with_a_single_node_is_recognised(run: Run, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("")
    result = run("up", "--data", tmp_path, "--brokers", "3")
    assert result.code == EXIT_CONFIG
    assert f"{tmp_path} holds a single node: leave out --brokers" in result.messages


def test_a_port_in_use_is_answered_with_an_option_that_the_command_has(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("up", "--port", port, "--data", tmp_path / "a")
        assert result.code == EXIT_UNAVAILABLE
        assert "Choose another port with --port P" in result.messages
        result = run("server", "--listen", f"127.0.0.1:{port}", "--data", tmp_path / "b")
        assert "Choose another address with --listen HOST:PORT" in result.messages
        result = run("server", "--listen", "127.0.0.1:0", "--metrics", f"127.0.0.1:{port}", "--data", tmp_path / "c")
        assert "Choose another address for metrics with --metrics HOST:PORT" in result.messages


def test_a_cluster_names_the_port_in_use_before_it_starts_anything(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] - 101
        assert ports_in_use(3, port)[port + 101] == "controller of node 2"
        result = run("up", "--brokers", 3, "--port", port, "--data", tmp_path / "data")
    assert result.code == EXIT_UNAVAILABLE
    assert f"{port + 101} (controller of node 2)" in result.messages
    assert "--port P" in result.messages
    assert not (tmp_path / "data").exists()


def test_a_port_without_room_for_the_others_is_refused(run: Run) -> None:
    assert run("up", "--brokers", 3, "--port", 65500).code == exit_codes.USAGE


def test_many_lines_about_the_same_event_are_folded() -> None:
    folder = RepeatFolder()
    line = "2026-11-17 05:07:28.585 INFO  ISR shrunk               partition=a-{}"
    shown = [shown for number in range(30) for shown in folder.take(line.format(number))]
    assert shown == [line.format(number) for number in range(REPEATS_SHOWN)]
    assert folder.take("2026-11-17 05:07:28.601 INFO  stopped") == [
        f"… and {30 - REPEATS_SHOWN} more: ISR shrunk",
        "2026-11-17 05:07:28.601 INFO  stopped",
    ]
    assert folder.end_run() == []


def test_warnings_are_never_folded() -> None:
    folder = RepeatFolder()
    line = "2026-11-17 05:07:28.585 WARN  log cut                  partition=a-0"
    assert [folder.take(line) for _ in range(5)] == [[line]] * 5
