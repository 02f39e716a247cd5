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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Picture

HERE = Path(__file__).parent
MIME = "application/vnd.course.figure+json"  # by which the book finds a figure among the outputs


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


def page(name: str, data: dict[str, Any], fallback: str, number: int) -> str:
    """HTML that shows the figure in a page without a kernel; `number` is its own in that page.

    `fallback` is the HTML for a reader whose browser runs no script.
    """
    place = f"figure-{number}"
    values = json.dumps(data).replace("</", "<\\/")  # else it could end the script
    return (
        f'<div id="{place}" class="course-figure"></div><noscript>{fallback}</noscript>\n'
        f'<script type="module">\n{source(name).replace("export default", "const figure =")}\n'
        f"const model = {{get: () => ({values})}};\n"
        f'figure.render({{model, el: document.getElementById("{place}")}});\n</script>\n'
    )


def png(picture: Picture) -> str:
    """`picture` as a PNG in base64."""
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=100, bbox_inches="tight")
    return base64.b64encode(buffer.getvalue()).decode()
