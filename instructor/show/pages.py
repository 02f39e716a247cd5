"""Turn Markdown, formulas, code and outputs of cells into HTML, for the book and the slides.

The HTML needs no network. Formulas become pictures (matplotlib sets them), code is coloured by
Pygments, figures are in the page itself, those to play with as a place that `figure_scripts` fills.
"""

import base64
import functools
import html
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course.figures.figure import MIME, figure_place

_FORMULA = re.compile(r"\$\$(?P<shown>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$]*?[^\s$])?)\$", re.S)
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.S)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PUT = re.compile(r"FORMULA(\d+)END")
_HEADING = re.compile(r"<h(?P<level>[1-6])>(?P<title>.*?)</h(?P=level)>", re.S)
_TAG = re.compile("<[^>]+>")
MENDS = (  # TeX that matplotlib does not know, and what it calls it
    (r"\\[lr]Vert\b", r"\\Vert "),
    (r"\\(ge|le|ne)\b", lambda m: {"ge": r"\geq", "le": r"\leq", "ne": r"\neq"}[m[1]]),
    (r"\\[dt]?frac\s*(\w)\s*(\w)(?!\w*})", r"\\frac{\1}{\2}"),
    (r"\\[dt]?frac\s*(\w)\s*{", r"\\frac{\1}{"),
    (r"\\sqrt\s*(\\\w+|\w)(?![\[{])", r"\\sqrt{\1}"),
    (r"\\color{\w+}", ""),
    (r"\\top\b", r"\\mathsf{T}"),
    (r"\\bmod\b", r"\\;\\mathrm{mod}\\;"),
    (r"\\begin{bmatrix}(.+?)\\\\(.+?)\\end{bmatrix}", r"\\left[\1;\\;\2\\right]"),
)
SIZE = 12  # points of a formula
LARGER = 1.12  # times the text around it: letters of formulas are small


def markdown(text: str) -> str:
    """`text` as HTML; headings get ids, formulas become pictures."""
    formulas = []

    def keep(match):
        formulas.append(formula(match["shown"] or match["inline"], bool(match["shown"])))
        return f"FORMULA{len(formulas) - 1}END"

    pieces = _CODE.split(text)
    for number in range(0, len(pieces), 2):  # odd pieces are code, in which a dollar is a dollar
        pieces[number] = _FORMULA.sub(keep, pieces[number])
    as_html = mistune.create_markdown(escape=False, plugins=["table", "strikethrough"])
    page = _HEADING.sub(_with_id, as_html("".join(pieces)))
    return _PUT.sub(lambda place: formulas[int(place[1])], page)


def _with_id(heading):
    level = heading["level"]
    title = heading["title"]
    return f'<h{level} id="{slug(title)}">{title}</h{level}>'


def slug(title: str) -> str:
    """The id of the heading `title` in a page."""
    plain = _TAG.sub("", html.unescape(title)).lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


@functools.cache
def formula(tex: str, shown: bool) -> str:
    """The formula `tex` as a picture in the text; as TeX if that fails.

    Args:
        shown: whether it has a line to itself.
    """
    from matplotlib import rc_context

    clean = " ".join(tex.split())
    for pattern, mended in MENDS:
        clean = re.sub(pattern, mended, clean)
    clean = re.sub(r"\\frac\b", r"\\dfrac", clean) if shown else clean
    pieces = re.split(r"\\qquad|\\\\", clean) if shown else [clean]
    with rc_context({"mathtext.fontset": "stix", "svg.fonttype": "path", "svg.hashsalt": "course"}):
        try:
            pictures = [
                _picture(piece.strip().strip("&"), tex) for piece in pieces if piece.strip()
            ]
        except ValueError:  # of TeX that matplotlib cannot set
            pictures = [f"<code>{html.escape(tex)}</code>"]
    return f'<span class="formula">{"".join(pictures)}</span>' if shown else "".join(pictures)


def _picture(tex, alt):
    """One formula as an image with its baseline on that of the text."""
    from matplotlib.figure import Figure
    from matplotlib.mathtext import MathTextParser

    width, height, depth, *_ = MathTextParser("path").parse(f"${tex}$", dpi=72)
    scale = SIZE / 10  # these are of a font of 10 points
    width *= scale
    height *= scale
    depth *= scale
    figure = Figure(figsize=((width + 2) / 72, (height + depth + 2) / 72))
    figure.text(1 / (width + 2), (depth + 1) / (height + depth + 2), f"${tex}$", fontsize=SIZE)
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    data = base64.b64encode(out.getvalue().encode()).decode()
    high = LARGER * (height + depth + 2) / SIZE
    low = LARGER * (depth + 1) / SIZE
    style = f"height:{high:.2f}em;vertical-align:{-low:.2f}em"
    alt = html.escape(alt)
    return f'<img class="tex" style="{style}" alt="{alt}" src="data:image/svg+xml;base64,{data}">'


def code(source: str) -> str:
    """Python source as coloured HTML."""
    return highlight(source, PythonLexer(), HtmlFormatter())


def output(item: Mapping[str, Any]) -> str:
    """One output of a notebook's cell as HTML: a figure, a picture, a table, or text.

    A figure to play with is its picture until a script of `figure_scripts` draws it.
    """
    data = item.get("data", {})
    if MIME in data:
        shown = data[MIME]
        picture = _png(data["image/png"], shown["caption"]) if "image/png" in data else ""
        return figure_place(shown["name"], shown["data"], picture)
    if "image/png" in data:
        return _png(data["image/png"], "figure")
    if "text/html" in data:
        return f'<div class="rich">{_joined(data["text/html"])}</div>'
    traceback = "\n".join(item.get("traceback", []))
    text = _joined(item.get("text") or data.get("text/plain") or traceback)
    lines = _ANSI.sub("", text).splitlines()
    text = "\n".join(line.rpartition("\r")[2] for line in lines)  # the last state of a bar
    return f"<pre>{html.escape(text)}</pre>" if text.strip() else ""


def _png(encoded, alt):
    source = f"data:image/png;base64,{_joined(encoded).strip()}"
    return f'<img class="figure" alt="{html.escape(alt)}" src="{source}">'


def _joined(text):
    return text if isinstance(text, str) else "".join(text)


def style() -> str:
    """The style sheet of all pages."""
    of_code = HtmlFormatter().get_style_defs(".highlight")
    return f"{asset('pages.css')}{of_code}\n"


def asset(name: str) -> str:
    """The text of a style sheet or a script next to this module."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
