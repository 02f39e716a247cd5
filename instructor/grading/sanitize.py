"""What a learner's code and text may show in somebody else's browser or terminal: text, pictures,
plain markup.

Outputs are not filtered but built from scratch from the few parts that are kept, so an unforeseen
field does not get through. gradebook.py knows where they are kept and shown.
"""

import base64
import contextlib
import html
import io
import re
from collections.abc import Mapping
from typing import Any

from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat import NotebookNode
from nbformat.v4 import new_output
from PIL import Image

from instructor.grading.limits import (
    SHOWN_CODE_CHARACTERS,
    SHOWN_CODE_LINE_CHARACTERS,
    SHOWN_MARKDOWN_CHARACTERS,
    SHOWN_PICTURE_BYTES,
    SHOWN_PICTURE_PIXELS,
    SHOWN_TEXT_CHARACTERS,
)

COLOURS = Highlight2HTML(pygments_lexer="ipython3")
PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG"}
INVISIBLE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles, links
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and newline
    r"|[\u202a-\u202e\u2066-\u2069]"  # text that runs backwards
)
TAGS = """a abbr b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i kbd li mark
          ol p pre s span strong sub summary sup table tbody td th thead tr u ul""".split()


def safe_text(value: Any) -> str:
    """`value` as text without terminal escapes, control characters and lone surrogates.

    A long one is cut. Lines end with a newline. A list is joined, as notebook files split their
    texts; anything else than text is "".
    """
    if isinstance(value, list):
        value = "".join(part for part in value if isinstance(part, str))
    if not isinstance(value, str):
        return ""
    cut = len(value) - SHOWN_TEXT_CHARACTERS
    shown = value[:SHOWN_TEXT_CHARACTERS]
    shown = INVISIBLE.sub("", shown.replace("\r\n", "\n").replace("\r", "\n"))
    shown = shown.encode("utf-8", "replace").decode()
    return shown + f"\n... {cut:,} more characters\n" if cut > 0 else shown


def safe_output(output: Mapping[str, Any]) -> NotebookNode | None:
    """What is kept of a cell's output.

    Args:
        output: nbformat's fields; it may hold anything.

    Returns: a new output with its text, its picture in PNG or JPEG, or its error; else None.
    """
    kind = output.get("output_type")
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return new_output("stream", name=name, text=safe_text(output.get("text")))
    if kind == "error":
        return _safe_error(output)
    if kind in ("display_data", "execute_result") and isinstance(output.get("data"), dict):
        return _safe_display(output["data"])
    return None


def _safe_error(output: Mapping[str, Any]) -> NotebookNode:
    lines = output.get("traceback")
    texts = lines if isinstance(lines, list) else []
    shown = safe_text("\n".join(text for text in texts if isinstance(text, str)))
    return new_output(
        "error",
        ename=safe_text(output.get("ename")),
        evalue=safe_text(output.get("evalue")),
        traceback=shown.splitlines(),
    )


def _safe_display(data: Mapping[str, Any]) -> NotebookNode | None:
    kept = {mime: _picture(mime, data.get(mime)) for mime in PICTURES}
    kept["text/plain"] = safe_text(data.get("text/plain"))
    kept = {mime: value for mime, value in kept.items() if value}
    return new_output("display_data", data=kept) if kept else None


def _picture(mime: str, encoded: Any) -> str | None:
    """The picture in base64, or None if it is not one of this kind or too large to show."""
    try:
        raw = base64.b64decode(encoded)
        width, height = Image.open(io.BytesIO(raw), formats=[PICTURES[mime]]).size
    except Exception:  # whatever is wrong with it, it is not shown
        return None
    if len(raw) > SHOWN_PICTURE_BYTES or width * height > SHOWN_PICTURE_PIXELS:
        return None
    return base64.b64encode(raw).decode()


def safe_markdown(source: str) -> str:
    """HTML of a markdown text: what is not plain markup shows as the text it is.

    There are no links but http, https and mailto. nbgrader's templates do without it: there
    HTMLExporter.sanitize_html cleans outputs, but not the texts of a notebook. Pictures are named,
    not shown. Formulas stay; MathJax runs in its safe mode on these pages.
    """
    source = safe_text(source)
    shown = f"<pre>{html.escape(source)}</pre>"
    if len(source) > SHOWN_MARKDOWN_CHARACTERS:
        return shown
    # a text made to break the parser must not keep a teacher from the page
    with contextlib.suppress(Exception):
        renderer = _NoPictures(escape=False, exclude_anchor_links=True)
        shown = MarkdownWithMath(renderer).render(source)
    cleaner = SanitizeHTML(tags=TAGS, attributes=_allowed)
    return str(cleaner.sanitize_html_tags(shown))


def safe_code(source: str, language: str | None = None, metadata: Any = None) -> str:
    """HTML of a code cell, in colours unless it is very long."""
    longest_line = max(map(len, source.split("\n")))
    if len(source) > SHOWN_CODE_CHARACTERS or longest_line > SHOWN_CODE_LINE_CHARACTERS:
        return f'<div class="highlight"><pre>{html.escape(source)}</pre></div>'
    return str(COLOURS(source, language, metadata))


# of nbconvert's HTMLExporter
FILTERS = {
    "markdown2html": safe_markdown,
    "highlight_code": safe_code,
}


class _NoPictures(IPythonRenderer):
    def image(self, text: str, url: str, title: str | None = None) -> str:
        return f"[picture: {html.escape(text)}]"


def _allowed(tag: str, name: str, value: str) -> bool:
    """True for an attribute that can only link, explain or colour code."""
    if name == "class":
        return value == "highlight" or len(value) <= 3  # those that Pygments gives
    return name == "title" or (tag, name) == ("a", "href")
