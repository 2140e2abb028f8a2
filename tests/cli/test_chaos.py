"""`penstock chaos`: what it refuses, and which faults it chooses. What it does is in tests/processes/test_chaos.py."""

from __future__ import annotations

import pytest

from cli.running import Run
from penstock.chaos.faults import catalogue
from penstock.cli import exit_codes
from penstock.cli.chaos import _choose


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "choose a cluster"),
        (["--brokers", "3", "-b", "127.0.0.1:1"], "choose a cluster"),
        (["--brokers", "3", "--faults", "earthquake"], "there is no earthquake"),
        (["--brokers", "3", "--faults", "cut-leader"], "cut-leader needs --netns"),
        (["--brokers", "3", "--faults", "rolling-swap"], "needs --mixed-with"),
        (["--brokers", "3", "--fault", "a=b"], "--fault is for a cluster of yours"),
        (["--brokers", "3", "--seconds", "5", "--rounds", "2"], "not both"),
        (["--brokers", "3", "--group-protocol", "share"], "classic or consumer"),
        (["--brokers", "3", "--workload", "casino"], "bank or copy"),
        (["-b", "127.0.0.1:1", "--netns"], "are for a cluster of its own"),
        (["-b", "127.0.0.1:1", "--rounds", "1"], "would end at once"),
        (["-b", "127.0.0.1:1", "--fault", "nonsense"], "not of the form key=value"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(run: Run, arguments: list[str], reason: str) -> None:
    result = run("chaos", *arguments)
    assert result.code == exit_codes.USAGE
    assert reason in result.messages


def test_all_faults_are_named_with_what_they_do(run: Run) -> None:
    result = run("chaos", "--list")
    assert result.code == exit_codes.OK
    names = [line.split("\t")[0] for line in result.lines[1:]]
    assert names == [fault.name for fault in catalogue()]
    assert len(set(names)) == len(names)


def test_faults_that_need_more_than_there_is_are_left_out_unless_they_are_named() -> None:
    def names(wanted: str, *, netns: bool, mixed: bool = False, brokers: int = 3) -> set[str]:
        return {one.name for one in _choose(wanted, netns=netns, mixed=mixed, brokers=brokers)}

    simple, everything = names("*", netns=False), names("*", netns=True, mixed=True)
    assert {"kill-leader", "kill-follower", "kill-controller", "kill-coordinator", "rolling-restart"} <= simple
    more = {"cut-leader", "cut-controller", "cut-leader-one-way", "full-disk-leader", "rolling-swap"}
    assert more <= everything - simple
    kills = {name for name in simple if name.startswith("kill")}
    assert names("kill-*,pause-leader", netns=False) == kills | {"pause-leader"}
    assert "kill-follower" not in names("kill-*", netns=False, brokers=1)
