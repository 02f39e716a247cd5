"""A figure to play with: name of an ES module and its data -> what a notebook or a page shows.

The module draws into an element and knows nothing of Jupyter: `render({model, el})`, where
`model.get("data")` is its data. In a notebook anywidget calls it, in the static book a script of
the page does. Where neither runs, for example on a service that renders notebooks, the picture is
shown.
"""

import base64
import functools
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Picture

HERE = Path(__file__).parent
MIME = "application/vnd.course.figure+json"  # by which the book finds a figure among the outputs
_PLACE = re.compile(r'<div class="course-figure" data-figure="(\w+)">')


@dataclass(frozen=True)
class Figure:
    """A figure of the course, shown where it is the last value of a cell.

    `name` is that of its module, <name>.js; `data` is JSON; `picture` is what it shows at first,
    and `caption` says so in words.
    """

    name: str
    data: dict[str, Any]
    picture: Picture
    caption: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle = {
            "text/plain": self.caption,
            "image/png": png(self.picture),
            MIME: {"name": self.name, "data": self.data, "caption": self.caption},
        }
        kind = widget_class(self.name)
        if kind is not None:
            widget, _ = kind(data=self.data)._repr_mimebundle_()
            bundle |= widget
        return bundle | {"text/plain": self.caption}


def source(name: str) -> str:
    """The text of the ES module of the figure `name`, with what all modules share before it."""
    kit = (HERE / "kit.js").read_text(encoding="utf-8")
    module = (HERE / f"{name}.js").read_text(encoding="utf-8")
    return f"{kit}\n{module}"


@functools.cache
def widget_class(name: str) -> type | None:
    """The widget of the figure `name`; None where anywidget is not installed."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        return None
    traits = {"_esm": source(name), "data": traitlets.Dict().tag(sync=True)}
    return type("CourseFigure", (anywidget.AnyWidget,), traits)


def figure_place(name: str, data: dict[str, Any], fallback: str) -> str:
    """HTML of the place of a figure in a page without a kernel, which `figure_scripts` draws into.

    Args:
        fallback: HTML that is shown until then, and for good where no script runs.
    """
    values = json.dumps(data).replace("<", "\\u003c")  # else it could end the script
    return (
        f'<div class="course-figure" data-figure="{name}">{fallback}'
        f'<script type="application/json">{values}</script></div>'
    )


def figure_scripts(body: str) -> str:
    """HTML of a script per kind of figure that has a place in the page `body`; "" without any.

    They belong at the end of the page and need no network.
    """
    names = sorted(set(_PLACE.findall(body)))
    return "".join(_script(name) for name in names)


def _script(name):
    module = source(name).replace("export default", "const figure =")
    return (
        f'<script type="module">\n{module}\n'
        f"for (const el of document.querySelectorAll('[data-figure=\"{name}\"]')) {{\n"
        "  const data = JSON.parse(el.querySelector('script').textContent);\n"
        "  el.replaceChildren();\n"
        "  figure.render({model: {get: () => data}, el});\n}\n</script>\n"
    )


def png(picture: Picture) -> str:
    """`picture` as a PNG in base64."""
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=100, bbox_inches="tight")
    return base64.b64encode(buffer.getvalue()).decode()
