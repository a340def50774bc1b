"""Sphinx builds the site of the documentation: ``nox -s docs``.

The pages are Markdown that GitHub shows as well; those below ``reference`` are written from the
code before each build (``_ext/chameleon_reference``).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Chameleon"
copyright = "the Chameleon authors"  # noqa: A001 - Sphinx reads this name
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "chameleon_reference",
]
exclude_patterns = ["_build", "_ext"]
html_theme = "furo"
html_title = "Chameleon"
html_show_sphinx = False

# Headings are linked to as on GitHub.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
napoleon_use_ivar = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
