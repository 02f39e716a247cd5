"""What a learner's code and text may show in somebody else's browser or terminal: text, pictures,
plain markup.

Outputs are not filtered but made anew from the few parts that are kept, so that no field nobody
thought of gets through. Where they are kept and shown is known to gradebook.py.
"""

import base64
import contextlib
import html
import io
import re

from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat.v4 import new_output
from PIL import Image

LONGEST_TEXT = 100_000  # characters of one output
# characters; what is longer is shown as it is, because the time of both parsers grows with the
# square
LONGEST_MARKDOWN, LONGEST_CODE, LONGEST_LINE = 10_000, 20_000, 500
COLOURS = Highlight2HTML(pygments_lexer="ipython3")
LARGEST_PICTURE = 2_000_000, 20_000_000  # bytes, pixels
PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG"}
INVISIBLE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles, links
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and newline
    r"|[\u202a-\u202e\u2066-\u2069]"  # text that runs backwards
)
TAGS = """a abbr b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i kbd li mark ol p pre s
          span strong sub summary sup table tbody td th thead tr u ul""".split()


def safe_text(value):
    """`value` as text without terminal escapes, control characters and lone surrogates; a long one
    is cut.

    Lines end with a newline. A list is joined, as notebook files split their texts; anything else
    than text is "".
    """
    if isinstance(value, list):
        value = "".join(part for part in value if isinstance(part, str))
    if not isinstance(value, str):
        return ""
    shown, cut = value[:LONGEST_TEXT], len(value) - LONGEST_TEXT
    shown = INVISIBLE.sub("", shown.replace("\r\n", "\n").replace("\r", "\n"))
    shown = shown.encode("utf-8", "replace").decode()
    return shown + f"\n... {cut:,} more characters\n" if cut > 0 else shown


def safe_output(output):
    """What is kept of a cell's output: a new output with its text, its picture in PNG or JPEG, or
    its error; else None.

    Args:
        output: dict of nbformat's fields; it may hold anything.
    """
    kind = output.get("output_type")
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return new_output("stream", name=name, text=safe_text(output.get("text")))
    if kind == "error":
        lines = output.get("traceback")
        shown = safe_text(
            "\n".join(line for line in lines if isinstance(line, str))
            if isinstance(lines, list)
            else ""
        )
        name, value = (safe_text(output.get(field)) for field in ("ename", "evalue"))
        return new_output("error", ename=name, evalue=value, traceback=shown.splitlines())
    if kind in ("display_data", "execute_result") and isinstance(output.get("data"), dict):
        data = {mime: _picture(mime, output["data"].get(mime)) for mime in PICTURES}
        data["text/plain"] = safe_text(output["data"].get("text/plain"))
        data = {mime: value for mime, value in data.items() if value}
        return new_output("display_data", data=data) if data else None
    return None


def _picture(mime, encoded):
    """The picture in base64, or None if it is not one of this kind or too large to show."""
    try:
        raw = base64.b64decode(encoded)
        width, height = Image.open(io.BytesIO(raw), formats=[PICTURES[mime]]).size
    except Exception:  # whatever is wrong with it, it is not shown
        return None
    nbytes, pixels = LARGEST_PICTURE
    return (
        base64.b64encode(raw).decode() if len(raw) <= nbytes and width * height <= pixels else None
    )


def safe_markdown(source):
    """HTML of a markdown text: what is not plain markup shows as the text it is; no links but http,
    https and mailto.

    nbgrader's templates do without it: there HTMLExporter.sanitize_html cleans outputs, but not the
    texts of a notebook. Pictures are named, not shown. Formulas stay; MathJax runs in its safe mode
    on these pages.
    """
    source = safe_text(source)
    shown = f"<pre>{html.escape(source)}</pre>"
    if len(source) > LONGEST_MARKDOWN:
        return shown
    with contextlib.suppress(
        Exception
    ):  # a text made to break the parser must not keep a teacher from the page
        shown = MarkdownWithMath(_NoPictures(escape=False, exclude_anchor_links=True)).render(
            source
        )
    return SanitizeHTML(tags=TAGS, attributes=_allowed).sanitize_html_tags(shown)


def safe_code(source, language=None, metadata=None):
    """HTML of a code cell, in colours unless it is very long."""
    if len(source) > LONGEST_CODE or max(map(len, source.split("\n"))) > LONGEST_LINE:
        return f'<div class="highlight"><pre>{html.escape(source)}</pre></div>'
    return COLOURS(source, language, metadata)


# of nbconvert's HTMLExporter
FILTERS = {
    "markdown2html": safe_markdown,
    "highlight_code": safe_code,
}


class _NoPictures(IPythonRenderer):
    def image(self, text, url, title=None):
        return f"[picture: {html.escape(text)}]"


def _allowed(tag, name, value):
    """True for an attribute that can only link, explain or colour code."""
    if name == "class":
        return value == "highlight" or len(value) <= 3  # those that Pygments gives
    return name == "title" or (tag, name) == ("a", "href")
