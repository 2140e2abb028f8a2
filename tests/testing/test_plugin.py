"""The fixtures, as a project of someone else's sees them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_S = 100
ALONE = {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run_pytest(directory: Path, *arguments: str) -> tuple[int, str]:
    """Runs pytest in a directory, with the plugin as an installed Penstock would bring it."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "penstock.testing.plugin", "-p", "no:cacheprovider",
            "--rootdir", str(directory), "-q", *arguments,
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **ALONE},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def project(directory: Path, tests: str, settings: str = "") -> None:
    (directory / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    (directory / "test_it.py").write_text(tests)


def test_scopes_markers_settings_and_names_of_topics(tmp_path: Path) -> None:
    project(
        tmp_path,
        """
import pytest

seen = {}

@pytest.mark.parametrize("turn", [1, 2])
def test_scopes(penstock, penstock_module, penstock_session, turn):
    clusters = (penstock, penstock_module, penstock_session)
    assert all(len(cluster.nodes) == 1 for cluster in clusters)
    if turn == 1:
        seen.update(clusters=clusters, topic=penstock_module.new_topic())
    else:
        assert penstock is not seen["clusters"][0]
        assert (penstock_module, penstock_session) == seen["clusters"][1:]
        assert penstock_module.consume(seen["topic"]) == []

@pytest.mark.penstock(brokers=2, settings={"broker.rack": "here"})
def test_the_marker_and_the_ini_option(penstock_cluster, penstock_topic):
    assert len(penstock_cluster.nodes) == 2
    assert penstock_cluster.node(2).settings["broker.rack"] == "here"
    assert penstock_cluster.node(2).settings["num.partitions"] == "7"
    assert penstock_topic.startswith("the_marker_and_the_ini_option-")
    assert penstock_cluster.in_sync(penstock_topic) == [1, 2]

def test_a_topic_alone_is_enough(penstock_topic):
    assert penstock_topic.startswith("a_topic_alone")

@pytest.mark.penstock(nodes=2)
def test_a_marker_that_is_wrong(penstock):
    pass
""",
        "penstock_settings =\n    num.partitions=7",
    )
    code, said = run_pytest(tmp_path, "--strict-markers")
    assert re.search(r"4 passed, 1 error", said), said
    assert "takes brokers=… and settings={…}" in said
    assert code == 1


def test_what_the_brokers_said_is_shown_with_a_test_that_failed(tmp_path: Path) -> None:
    project(tmp_path, "def test_it(penstock):\n    assert 'good' == 'bad'\n")
    code, said = run_pytest(tmp_path)
    assert code == 1
    assert "Brokers of penstock" in said
    assert re.search(r"INFO +ready +listener=127\.0\.0\.1:\d+", said)


def test_who_uses_no_broker_loads_none(tmp_path: Path) -> None:
    project(
        tmp_path,
        """
import sys

def test_it():
    loaded = [name for name in sys.modules if name.startswith("penstock") or name in ("uvloop", "confluent_kafka")]
    assert sorted(loaded) == ["penstock", "penstock.testing", "penstock.testing.plugin"]
""",
    )
    code, said = run_pytest(tmp_path)
    assert code == 0, said


def test_the_package_registers_the_plugin_under_the_name_of_its_module() -> None:
    """`-p penstock.testing.plugin` then means the same with and without an installation."""
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\n"penstock.testing.plugin" = "penstock.testing.plugin"\n' in text


def test_the_examples_of_the_documentation_work(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "testing.md").read_text()
    examples = re.findall(r"<!-- run -->\n```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == page.count("```python"), "every example is run"
    for number, example in enumerate(examples):
        (tmp_path / f"test_{number}.py").write_text(example)
    (tmp_path / "test_order_service.py").write_text((ROOT / "examples" / "test_order_service.py").read_text())
    impatient = "penstock_settings =\n    broker.session.timeout.ms=1000\n    replica.lag.time.max.ms=1000\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{impatient}")
    code, said = run_pytest(tmp_path)
    assert code == 0, said
    assert "9 passed" in said


@pytest.mark.parametrize("name", ["new_topic", "wait_until", "isolate", "slow_disk", "cut_clients"])
def test_the_page_tells_of_what_there_is(name: str) -> None:
    from penstock.testing import Cluster, Node

    assert hasattr(Cluster, name) or hasattr(Node, name)
    assert name in (ROOT / "docs" / "how-to" / "testing.md").read_text()
