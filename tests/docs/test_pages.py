"""Every command and program that README and the quick start show is run, in their order, as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.blocks import blocks_of, missing_output
from docs.running import ROOT, Reader, own_network
from support.spark import require_spark

PAGES = ("README.md", "docs/tutorials/quickstart.md")
# `make run` takes its options from here. Without Spark it starts in a second.
WITHOUT_SPARK = {"DEMO": "--no-spark"}


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    blocks = blocks_of(read(page))
    assert len(blocks) > 3
    for block in blocks:
        assert block.is_run or block.is_left_out, f"{page}:{block.line}: <!-- {block.marker} -->"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_stands(page: str, tmp_path: Path) -> None:
    """But for the blocks that need Spark."""
    follow(page, tmp_path, spark=False)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_stands_with_spark(page: str, tmp_path: Path) -> None:
    require_spark()
    follow(page, tmp_path, spark=True)


def follow(page: str, directory: Path, *, spark: bool) -> None:
    with own_network() as network, Reader(directory, network, {} if spark else WITHOUT_SPARK) as reader:
        for block in blocks_of(read(page)):
            if block.is_run and (spark or not block.needs_spark):
                reader.run(block)
        reader.stop()


EXAMPLE = """
<!-- run: spark until "ready" -->
```console
$ cat <<'END' | sort
$ not a command
END
$ penstock topics \\
    list
hello … 3
```

```sql
SELECT 1
```

```python
print(1)
```
"""


def test_blocks_are_read() -> None:
    console, python = blocks_of(EXAMPLE)
    assert (console.until, console.needs_spark, console.is_run) == ("ready", True, True)
    assert console.script == "cat <<'END' | sort\n$ not a command\nEND\npenstock topics \\\n    list\n"
    assert console.output == ["hello … 3"]
    assert not python.is_run
    assert not python.is_left_out


def test_output_is_compared_line_by_line_in_order() -> None:
    assert missing_output(["a … c", "d"], "x\na  b\tc\ny\nd\n") is None
    assert missing_output(["d", "a"], "a\nd\n") == "a"
    assert missing_output(["…"], "") == "…"
