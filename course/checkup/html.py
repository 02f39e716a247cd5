"""The report as one file of HTML, without network: the screen, a bar per step, a timeline of ten
steps.
"""

import html

COLOURS = {
    "data": "#e69f00",
    "transfer": "#cc79a7",
    "forward": "#009e73",
    "backward": "#56b4e9",
    "optimizer": "#0072b2",
    "communication": "#d55e00",
    "evaluation": "#f0e442",
    "code": "#999999",
}
WIDTH, HEIGHT, SPACE = 900, 22, 6  # pixels of a bar


def page(report) -> str:
    """The document."""
    title = html.escape(f"Check-up of {report.data['name']}: {report.data['regime']}")
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title>"
        f"<style>body{{font-family:sans-serif;margin:2em;max-width:62em}}pre{{white-space:pre-wrap}}</style>"
        f"<h1>{title}</h1>{_legend()}<h2>A step</h2>{_bar(report.data)}<h2>Ten steps</h2>{_timeline(report.steps)}"
        f"<pre>{html.escape(str(report))}</pre>"
    )


def _legend():
    names = {name: "your code" if name == "code" else name for name in COLOURS}
    return " ".join(
        f'<span style="color:{COLOURS[name]}">&#9632;</span> {text}' for name, text in names.items()
    )


def _rectangle(x, y, width, name, text):
    colour = COLOURS.get(name, COLOURS["code"])
    return (f'<rect x="{x:.1f}" y="{y}" width="{max(0.3, width):.1f}" height="{HEIGHT}" fill="{colour}">'
            f"<title>{html.escape(text)}</title></rect>")  # fmt: skip


def _picture(height, shapes):
    return f'<svg width="{WIDTH}" height="{height}" role="img">{"".join(shapes)}</svg>'


def _bar(data):
    x, shapes = 0.0, []
    for name, row in data["phases"].items():
        shapes.append(_rectangle(x, 0, WIDTH * row["share"], name, f"{name} {row['share']:.1%}"))
        x += WIDTH * row["share"]
    return _picture(HEIGHT, shapes)


def _timeline(steps):
    scale, shapes = WIDTH / max((step.seconds for step in steps), default=1.0), []
    for number, step in enumerate(steps):
        for name, begin, end in step.pieces:
            x, y, text = (
                begin - step.pieces[0][1],
                number * (HEIGHT + SPACE),
                f"{name} {1000 * (end - begin):.3g} ms",
            )
            shapes.append(_rectangle(scale * x, y, scale * (end - begin), name, text))
    return _picture(len(steps) * (HEIGHT + SPACE), shapes)
