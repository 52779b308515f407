"""What MkDocs is told while it builds: the pages, their pictures, the navigation, how formulas are rendered."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs loads this file by its path

from website.formula import fence
from website.pages import navigation, pages
from website.places import pictures

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

FOUND: dict[str, str] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation, and the block of Markdown that is a formula."""
    FOUND.update(pages())
    config.nav = navigation(FOUND)
    math = {"name": "math", "class": "formula", "format": fence}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [math]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Every page as the site has it, instead of what lies in docs/."""
    from mkdocs.structure.files import File

    for file in list(files.documentation_pages()):
        files.remove(file)
    for place, text in FOUND.items():
        files.append(File.generated(config, place, content=text))
    for place, path in pictures().items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files
