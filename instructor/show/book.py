"""Make static pages of the units, a folder of HTML that needs no server and no network.

A page per part, with figures and outputs of the executed notebook, and solutions folded, or, in the
learners' edition, replaced by what the learner's notebook has there. A page per document in docs/,
and a search over all sections.
"""

import html
import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import nbformat

from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import Part, Unit, all_units, solutions_folder
from course.system.files import atomic_folder
from course.system.folders import ROOT
from instructor.show.pages import code, markdown, output, style

DOCS = (
    "workshop",
    "hub",
    "tutor",
    "grading",
    "grading-cluster",
    "more-machines",
    "results",
    "claims",
)
# not in the learners' edition
TEACHERS = (
    "workshop",
    "hub",
    "grading",
    "grading-cluster",
    "claims",
)
TITLE = "Scaling PyTorch training"
_HREF = re.compile(r'(?:href|src)="([^"]+)"')
_ID = re.compile(r'\bid="([^"]+)"')
# of nbgrader
_MARKERS = re.compile(r"^ *### (?:BEGIN|END) SOLUTION\n?|=== END MARK SCHEME ===", re.M)
_BODY = re.compile(r"<(script|style|svg)\b.*?</\1>|<[^>]+>", re.S)


@dataclass
class Page:
    """One page: where it lies in the book, its title, and its body as HTML."""

    path: str
    title: str
    body: str


def make_book(out: Path, learners: bool = False) -> list[Page]:
    """Write the book to the folder `out`, which is replaced; return its pages.

    Args:
        learners: leave out solutions, and documents for instructors.

    Raises: CourseError if `out` holds other files than a book, cannot be written, or a link leads
    nowhere.
    """
    if (
        out.exists()
        and not (out / "search.js").exists()
        and (not out.is_dir() or any(out.iterdir()))
    ):
        raise CourseError(
            f"{out} holds files of something other than a book; name a new or empty folder."
        )
    units = all_units()
    pages = [_index(units), *(_page_of(part, learners) for unit in units for part in unit.parts)]
    pages += _documents(learners)
    broken = broken_links(pages)
    if broken:
        raise CourseError(f"links of the book that lead nowhere: {'; '.join(broken[:5])}")
    with atomic_folder(out) as new:
        for page in pages:
            path = new / page.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_whole(page, pages, units), encoding="utf-8")
        (new / "style.css").write_text(style() + LAYOUT, encoding="utf-8")
        (new / "search.js").write_text(
            f"const SECTIONS = {json.dumps(_sections(pages))};\n{SEARCH}", encoding="utf-8"
        )
    return pages


def _place(part):
    return f"{part.unit}/{part.name}.html"


def _index(units):
    """The first page: what the units ask, and how long they take."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    opening = readme.partition("\n\n")[2].partition("\n\n")[0]
    rows = ["<table><tr><th>part</th><th>question</th><th>minutes, core</th><th>in all</th></tr>"]
    for unit in units:
        rows.append(f'<tr><th colspan="2">{unit.name[:2]} {html.escape(unit.title)}</th>'
                    f"<th>{unit.core_minutes}</th><th>{unit.all_minutes}</th></tr>")  # fmt: skip
        for part in unit.parts:
            link = f'<a href="{_place(part)}">{part.number} {html.escape(part.title)}</a>'
            question, core = html.escape(part.question), part.core_minutes or "–"
            rows.append(
                f"<tr><td>{link}</td><td>{question}</td><td>{core}</td><td>{part.all_minutes}</td></tr>"
            )
    return Page(
        "index.html", TITLE, markdown(f"# {TITLE}\n\n{opening}") + "".join([*rows, "</table>"])
    )


def _documents(learners):
    """The Pages of docs/."""
    notes = sorted((ROOT / "docs" / "workshop").glob("*.md"))
    for path in [*(ROOT / "docs" / f"{name}.md" for name in DOCS), *notes]:
        if learners and (path.stem in TEACHERS or path in notes):
            continue
        text = (
            _short_places(path.read_text(encoding="utf-8"))
            if path.stem == "claims"
            else path.read_text("utf-8")
        )
        place = path.relative_to(ROOT).with_suffix(".html").as_posix()
        yield Page(place, text.partition("\n")[0].lstrip("# "), _linked(markdown(text), learners))


def _short_places(text):
    """The table of claims with one narrow column for unit and part, whose entries lead to the
    part.
    """
    text = text.replace("| unit | part |", "| part |").replace("|---|---|", "|---|", 1)
    return re.sub(
        r"^\| (\d\d)(_\w+) \| (\d+)(_\w+) \|", r"| [\1/\3](../\1\2/\3\4.ipynb) |", text, flags=re.M
    )


def _page_of(part, learners):
    body = _linked("".join(_cells(part, learners)), learners)
    return Page(_place(part), f"{part.unit[:2]}/{part.number} {part.title}", body)


def _cells(part: Part, learners: bool) -> Iterator[str]:
    """The cells of a part as HTML."""
    path = solutions_folder() / part.unit / f"{part.name}.ipynb"
    stubs = nbformat.read(ROOT / "notebooks" / part.unit / f"{part.name}.ipynb", as_version=4).cells
    stubs = {grade_id(cell): cell.source for cell in stubs if grade_id(cell)}
    for cell in nbformat.read(path, as_version=4).cells:
        name, is_answer = grade_id(cell), cell.metadata.get("nbgrader", {}).get("solution", False)
        if name and name.endswith("-hidden"):
            continue
        source = stubs.get(name, cell.source) if learners else _MARKERS.sub("", cell.source)
        if cell.cell_type == "markdown":
            source = source.replace("=== BEGIN MARK SCHEME ===", "**Mark scheme**\n\n")
            shown = markdown(re.sub(r"<!--.*?-->", "", source, flags=re.S))
            yield (
                _folded("A possible answer", shown)
                if is_answer and not learners
                else f"<section>{shown}</section>"
            )
            continue
        if source.strip():
            shown = code(source)
            yield _folded(f"Solution: {name}", shown) if is_answer and not learners else shown
        yield from (f'<div class="output">{output(item)}</div>' for item in cell.get("outputs", []))


def _folded(title, shown):
    return f'<details class="solution"><summary>{html.escape(title)}</summary>{shown}</details>'


def _linked(page: str, learners: bool) -> str:
    """`page` with links to documents of the repository turned into links to their pages, and others
    into text.
    """

    def turn(match):
        target, anchor = match[1].partition("#")[::2]
        if "://" in match[1] or not target or target.startswith("data:"):
            return match[0]
        if target.endswith(".md") and (Path(target).stem in DOCS or "workshop/" in target):
            hidden = learners and (Path(target).stem in TEACHERS or "workshop/" in target)
            return (
                'data-gone="1"'
                if hidden
                else f'href="{target[:-3]}.html{"#" * bool(anchor)}{anchor}"'
            )
        if target.endswith(".ipynb"):
            return f'href="{target[:-6]}.html"'
        return 'data-gone="1"'  # a file that is not in the book

    return re.sub(r'href="([^"]+)"', turn, page)


def broken_links(pages: list[Page]) -> list[str]:
    """A sentence for each link of `pages` to a page or a heading that there is not."""
    ids = {page.path: {*_ID.findall(page.body)} for page in pages}
    broken = []
    for page in pages:
        for target in _HREF.findall(page.body):
            if "://" in target or target.startswith("data:"):
                continue
            path, _, anchor = target.partition("#")
            # "/": no link leads above the book
            at = posixpath.join("/", posixpath.dirname(page.path), path)
            there = posixpath.normpath(at)[1:] if path else page.path
            if there not in ids or anchor and anchor not in ids[there]:
                broken.append(f"{page.path} links to {target}")
    return broken


def _sections(pages):
    """[[path#id, title of the page, title of the section, its text in small letters]] for the
    search.
    """
    entries = []
    for page in pages:
        pieces = re.split(r'<h[1-4] id="([^"]*)">(.*?)</h[1-4]>', page.body, flags=re.S)
        for anchor, title, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            plain = " ".join(html.unescape(_BODY.sub(" ", text)).split()).lower()
            entries.append(
                [f"{page.path}#{anchor}", page.title, _BODY.sub("", title), plain[:3000]]
            )
    return entries


def _whole(page: Page, pages: list[Page], units: list[Unit]) -> str:
    """The HTML of a page, with navigation and search."""
    up = "../" * page.path.count("/")
    links = [f'<a class="home" href="{up}index.html">{TITLE}</a>']
    links += [
        '<input id="search" type="search" placeholder="search" autocomplete="off">',
        '<div id="found"></div>',
    ]
    for unit in units:
        here = page.path.startswith(f"{unit.name}/")
        parts = "".join(
            _entry(_place(part), f"{part.number} {part.title}", page, up) for part in unit.parts
        )
        title = f"{unit.name[:2]} {html.escape(unit.title)}"
        links.append(
            f"<details {'open' if here else ''}><summary>{title}</summary>{parts}</details>"
        )
    documents = [p for p in pages if p.path.startswith("docs/")]
    links.append(
        "<hr>"
        + "".join(_entry(p.path, p.title, page, up) for p in documents if p.path.count("/") == 1)
    )
    inside = "".join(
        f'<a href="#{a}">{t}</a>'
        for a, t in re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', page.body, re.S)
    )
    at = pages.index(page)
    around = pages[max(at - 1, 0) : at] + pages[at + 1 : at + 2]
    foot = " · ".join(f'<a href="{up}{p.path}">{html.escape(p.title)}</a>' for p in around)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>{html.escape(page.title)}</title><link rel="stylesheet" href="{up}style.css">'
        f'<body data-up="{up}"><nav>{"".join(links)}</nav><main>{page.body}<footer>{foot}</footer></main>'
        f'<aside>{inside}</aside><script src="{up}search.js"></script></body></html>'
    )


def _entry(path, title, page, up):
    mark = ' class="here"' if path == page.path else ""
    return f'<a{mark} href="{up}{path}">{html.escape(title)}</a>'


LAYOUT = """
body { display: grid; grid-template-columns: 250px minmax(0, 1000px) 200px; gap: 32px; }
nav, aside { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 18px; font-size: 14px; }
nav { background: var(--back); border-right: 1px solid var(--line); }
nav a, aside a { display: block; padding: 3px 0; color: var(--text); }
nav details a { padding-left: 14px; } nav summary { padding: 4px 0; color: var(--text); font-weight: 600; }
nav .home { font-weight: 700; font-size: 16px; margin-bottom: 10px; } .here { color: var(--link); font-weight: 600; }
aside a { color: var(--soft); } main { padding: 10px 0 60px; min-width: 0; }
main > section { max-width: 860px; } main > section table { max-width: 1000px; }
#search { width: 100%; padding: 6px 8px; border: 1px solid var(--line); border-radius: 4px; margin-bottom: 10px; }
#found a { border-bottom: 1px solid var(--line); } #found small { color: var(--soft); display: block; }
.solution, .output { margin: 10px 0; } .solution { border-left: 3px solid var(--link); padding-left: 12px; }
.output pre { background: none; border-left: 3px solid var(--line); border-radius: 0; white-space: pre-wrap; }
footer { border-top: 1px solid var(--line); margin-top: 40px; padding-top: 12px; }
@media (max-width: 1560px) { body { grid-template-columns: 240px minmax(0, 1000px); } aside { display: none; } }
@media (max-width: 700px) { body { display: block; } nav { position: static; height: auto; } main { padding: 18px; } }
@media print { body { display: block; } nav, aside { display: none; } pre { white-space: pre-wrap; } }
"""
SEARCH = """
const up = document.body.dataset.up, field = document.getElementById("search");
const found = document.getElementById("found");
field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  found.replaceChildren();
  if (!words.length) return;
  const rank = ([, page, title, text]) => {
    const head = (page + " " + title).toLowerCase();
    if (!words.every(word => head.includes(word) || text.includes(word))) return 0;
    return 1 + words.filter(word => head.includes(word)).length;
  };
  const ranked = SECTIONS.map(s => [rank(s), s]).filter(([r]) => r).sort((a, b) => b[0] - a[0]).slice(0, 12);
  for (const [, [path, page, title]] of ranked) {
    const link = document.createElement("a"), small = document.createElement("small");
    link.href = up + path; link.textContent = title; small.textContent = page;
    link.append(small); found.append(link);
  }
  if (!ranked.length) found.textContent = "nothing found";
});
"""


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "build" / "book", show_default="build/book",
              help="The folder of the book.")  # fmt: skip
@click.option("--learners", is_flag=True, help="Leave out solutions and what is for instructors.")
def book(out, learners):
    """Make static pages of all parts, with figures, folded solutions and a search; they need no
    network.

    \b
    Examples:
      course book
      course book --learners --out public
    """
    pages = make_book(out, learners)
    click.echo(f"{out}: {len(pages)} pages; open {out / 'index.html'}")
