"""How Sphinx builds the documentation: `nox -s docs`."""

import inspect
import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import attrs
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

ROOT: Final = Path(__file__).parents[1]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = PROJECT["name"]
author = PROJECT["authors"][0]["name"]
version = release = metadata.version(project)

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
# A name in single backticks of a docstring becomes a link wherever the reference has that name.
default_role = "py:obj"
smartquotes = False

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["payasync.css"]
html_search_scorer = str(ROOT / "docs" / "scorer.js")
html_copy_source = html_show_sourcelink = html_show_copyright = html_show_sphinx = False

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 4
# A prompt is no part of a command.
copybutton_prompt_text = "$ "

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88


def prepare(
    _app: Sphinx,
    what: str,
    _name: str,
    _thing: object,
    _options: object,
    lines: list[str],
) -> None:
    """Make links of the sections that a docstring cites, and keep the first line of a property whole.

    A constant has the docstring of its value's class: the page describes the constant instead.
    """
    if what == "data":
        lines.clear()
    for at, line in enumerate(lines):
        lines[at] = re.sub(
            r"docs/((?:reference|how-to)/[\w-]+)\.md#([\w-]+)",
            lambda cited: f"`{cited[2].replace('-', ' ')} <../../{cited[1]}.html#{cited[2]}>`__",
            line,
        )
    if what == "property" and lines:
        # Napoleon takes what stands before a colon for the type.
        lines[0] = lines[0].replace(": ", " \N{EN DASH} ", 1)


def sign(
    _app: Sphinx,
    what: str,
    _name: str,
    thing: Any,
    _options: object,
    arguments: str | None,
    returns: str | None,
) -> tuple[str | None, str | None] | None:
    """Show a signature as a reader would write it; none of a class that users get and do not make."""
    if what == "class" and "Args:" not in (thing.__doc__ or ""):
        return "", None
    if arguments is None:
        return None
    fields = attrs.fields_dict(thing) if attrs.has(thing) else {}
    arguments = re.sub(
        r"attr_dict\['(\w+)'\]\.default",
        lambda found: repr(fields[found[1]].default),
        arguments,
    )
    arguments = re.sub(r" \| [~\w.]*Literal\[_Absent\.ABSENT\]", "", arguments).replace("= NOTHING", "= {}")
    if inspect.iscoroutinefunction(inspect.unwrap(thing)) and not inspect.iscoroutinefunction(thing):
        returns = f"Awaitable[{returns}]"
    return arguments, returns and re.sub(r"[~\w.]*Coroutine\[[~\w.]*Any, [~\w.]*Any, ", "Awaitable[", returns)


def caption(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Show the file name that a block of code has as its title: MyST would drop it."""
    source[0] = re.sub(
        r'^```(\w+) title="(.+?)"$',
        r"```{code-block} \1\n:caption: \2",
        source[0],
        flags=re.MULTILINE,
    )


def keep_lines(_app: Sphinx, _context: object, lines: list[str]) -> None:
    """Show the lists of a `--help`, such as its examples, as a terminal shows them."""
    kept: list[str] = []
    for before, line in zip(["", *lines], list(lines), strict=False):
        listed = line.startswith("| ")
        heading = listed and not before.startswith("|") and not line.startswith("|   ")
        if listed and not before.startswith("|"):
            kept += [
                *([line[2:], ""] if heading else []),
                ".. code-block:: text",
                "",
            ]
        if not heading:
            kept.append(f"  {line[2:]}" if listed else line)
    lines[:] = kept


def dash(_app: Sphinx, doctree: nodes.document) -> None:
    """Set a dash between an argument's name and its text; options such as --json keep their hyphens."""
    for text in [each for each in doctree.findall(nodes.Text) if each == " -- "]:
        text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def link(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element) -> nodes.Element | None:
    """Link a name to its only definition: annotations name the module of a class, docstrings the bare class."""
    domain = env.domains.python_domain
    if node.get("refdomain") != domain.name:
        return None
    found = [
        (name, thing)
        for name, thing in domain.objects.items()
        if name.rpartition(".")[2] == node["reftarget"].rpartition(".")[2]
        and thing.objtype in {"class", "data", "exception", "function"}
    ]
    if len(found) != 1:
        return None
    name, thing = found[0]
    return make_refnode(app.builder, node["refdoc"], thing.docname, thing.node_id, shown, name)


def break_names(
    _app: Sphinx,
    _page: str,
    _template: str,
    context: dict[str, Any],
    _doctree: object,
) -> None:
    """Let a browser break a long name between its words, and not inside of a word."""
    context["body"] = re.sub(
        r'(?<=<span class="pre">)[^<]+',
        lambda name: re.sub(r"(?<=[\w\]][._/=(-])(?=\w)|(?<=[a-z])(?=[A-Z])", "<wbr>", name[0]),
        context.get("body", ""),
    )


def setup(app: Sphinx) -> None:
    """Connect with Sphinx; before Napoleon, which reads the docstrings at priority 500."""
    app.connect("autodoc-process-docstring", prepare, priority=400)
    app.connect("autodoc-process-signature", sign)
    app.connect("source-read", caption)
    app.connect("sphinx-click-process-description", keep_lines)
    app.connect("sphinx-click-process-epilog", keep_lines)
    app.connect("doctree-read", dash)
    app.connect("missing-reference", link)
    app.connect("html-page-context", break_names)
