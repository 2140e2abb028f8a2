"""A hook of MkDocs for links from the pages to files outside `docs/`, such as examples and sources.

On the site they lead to the repository. Pictures that benchmarks draw are copied into the site instead.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\((\.\./[^)\s]*)\)")
PICTURES = "bench/results/**/*.svg"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for picture in ROOT.glob(PICTURES):
        files.append(File.generated(config, picture.relative_to(ROOT).as_posix(), abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def rewritten(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[1].partition("#")[0]))
        if target.is_relative_to(config.docs_dir):
            return link[0]
        path = target.relative_to(ROOT).as_posix()
        if target.match(PICTURES.rpartition("/")[2]):
            return f"]({os.path.relpath(path, Path(page.file.src_uri).parent)})"
        return f"]({config.repo_url}/blob/main/{path})"

    return LINK.sub(rewritten, markdown)
