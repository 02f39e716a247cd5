"""Turn Markdown, formulas, code and outputs of cells into HTML that needs no network, for the book
and the slides.

Formulas become pictures (matplotlib sets them), code is coloured by Pygments, figures are in the
page itself.
"""

import base64
import functools
import html
import io
import re

import mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

_FORMULA = re.compile(r"\$\$(?P<shown>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$]*?[^\s$])?)\$", re.S)
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.S)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PUT = re.compile(r"FORMULA(\d+)END")
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
        formulas.append((match["shown"] or match["inline"], bool(match["shown"])))
        return f"FORMULA{len(formulas) - 1}END"

    pieces = _CODE.split(text)  # odd pieces are code, in which a dollar is a dollar
    escaped = "".join(
        piece if i % 2 else _FORMULA.sub(keep, piece) for i, piece in enumerate(pieces)
    )
    page = mistune.create_markdown(escape=False, plugins=["table", "strikethrough"])(escaped)
    page = re.sub(
        r"<h([1-6])>(.*?)</h\1>",
        lambda m: f'<h{m[1]} id="{slug(m[2])}">{m[2]}</h{m[1]}>',
        page,
        flags=re.S,
    )
    return _PUT.sub(lambda m: formula(*formulas[int(m[1])]), page)


def slug(title: str) -> str:
    """The id of the heading `title` in a page."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub("<[^>]+>", "", html.unescape(title)).lower()).strip(
        "-"
    )


@functools.cache
def formula(tex: str, shown: bool) -> str:
    """The formula `tex` as a picture in the text, or in a line of its own if it is `shown`; as TeX
    if that fails.
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
    # of a font of 10 points
    depth, height, width = (
        depth * SIZE / 10,
        height * SIZE / 10,
        width * SIZE / 10,
    )
    figure = Figure(figsize=((width + 2) / 72, (height + depth + 2) / 72))
    figure.text(1 / (width + 2), (depth + 1) / (height + depth + 2), f"${tex}$", fontsize=SIZE)
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    data = base64.b64encode(out.getvalue().encode()).decode()
    high, low = (LARGER * points / SIZE for points in (height + depth + 2, depth + 1))
    style = f"height:{high:.2f}em;vertical-align:{-low:.2f}em"
    return f'<img class="tex" style="{style}" alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{data}">'


def code(source: str) -> str:
    """Python source as coloured HTML."""
    return highlight(source, PythonLexer(), HtmlFormatter())


def output(item: dict) -> str:
    """One output of a notebook's cell as HTML: a picture, a table, or text."""
    data = item.get("data", {})
    if "image/png" in data:
        return f'<img class="figure" alt="figure" src="data:image/png;base64,{_joined(data["image/png"]).strip()}">'
    if "text/html" in data:
        return f'<div class="rich">{_joined(data["text/html"])}</div>'
    text = _joined(
        item.get("text") or data.get("text/plain") or "\n".join(item.get("traceback", []))
    )
    # the last state of a bar
    text = "\n".join(line.rpartition("\r")[2] for line in _ANSI.sub("", text).splitlines())
    return f"<pre>{html.escape(text)}</pre>" if text.strip() else ""


def _joined(text):
    return text if isinstance(text, str) else "".join(text)


def style() -> str:
    """The style sheet of all pages."""
    return STYLE + HtmlFormatter().get_style_defs(".highlight")


STYLE = """
:root { --text: #1d2430; --soft: #5b6675; --line: #dfe3e8; --link: #1557b0; --back: #f6f7f9; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--text); font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
pre, code { font-family: "DejaVu Sans Mono", Consolas, monospace; font-size: 0.86em; }
pre { background: var(--back); padding: 10px 14px; overflow-x: auto; border-radius: 4px; font-size: 13px; }
pre { line-height: 1.4; }
:not(pre) > code { background: var(--back); padding: 1px 4px; border-radius: 3px; }
table { border-collapse: collapse; margin: 12px 0; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: 4px 12px 4px 0; text-align: left; vertical-align: top; }
img.figure { max-width: 100%; height: auto; display: block; margin: 14px 0; }
.formula { display: block; text-align: center; margin: 14px 0; } .formula img { margin: 0 1.2em; max-width: 100%; }
summary { cursor: pointer; color: var(--link); }
"""
