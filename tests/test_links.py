"""Links and mentions of pages lead to something that exists, and the site's menu has every page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import architecture

import penstock

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LISTED = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
NAMES = [
    name for name in LISTED.splitlines() if name and (ROOT / name).is_file() and not name.startswith("bench/results/")
]
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)")
MENTION = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.md\b")
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="ignore")


def anchors_of(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def test_every_relative_link_resolves() -> None:
    broken = []
    for page in (ROOT / name for name in NAMES if name.endswith(".md")):
        for path, anchor in LINK.findall(FENCED.sub("", text_of(page))):
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                broken.append(f"{page.relative_to(ROOT)}: {path}#{anchor}")
    assert not broken


def test_every_page_that_a_file_mentions_exists() -> None:
    broken = [
        f"{name}: {mention}"
        for name in NAMES
        for mention in MENTION.findall(text_of(ROOT / name))
        if not (ROOT / mention).exists()
    ]
    assert not broken


def test_the_menu_of_the_site_has_every_page_once() -> None:
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_index_links_to_every_page_but_single_decisions() -> None:
    linked = {path for path, _ in LINK.findall(text_of(DOCS / "index.md"))}
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert {page for page in pages if not page.startswith("decisions/0")} - {"index.md"} <= linked


def test_the_map_in_the_package_names_every_package() -> None:
    named = set(re.findall(r"`(\w+)`", penstock.__doc__ or ""))
    assert {package.name for package in architecture.PACKAGES} <= named


def test_the_walk_of_a_produce_names_methods_that_exist() -> None:
    (walk,) = re.findall(r"## A Produce.*?```mermaid\n(.*?)```", text_of(DOCS / "design.md"), re.DOTALL)
    steps = re.findall(r"\b([A-Z]\w+)\.(\w+)", walk)
    assert len(steps) > 10
    sources = [text_of(path) for path in (ROOT / "src" / "penstock").rglob("*.py")]
    missing = [
        f"{owner}.{method}"
        for owner, method in steps
        if not any(f"class {owner}" in source and f"def {method}(" in source for source in sources)
    ]
    assert not missing
