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
from typing import NamedTuple

import click

from course.errors import CourseError
from course.figures.figure import figure_scripts
from course.notebook.cells import HIDDEN, Cell, read_cells
from course.notebook.registry import Part, Unit, all_units, solutions_folder
from course.system.files import atomic_folder
from course.system.folders import ROOT
from instructor.show.pages import asset, code, markdown, output, style

DOCS = (
    "workshop",
    "hub",
    "tutor",
    "grading",
    "grading-cluster",
    "more-machines",
    "results",
    "flip-map",
    "claims",
)
TEACHERS = ("workshop", "hub", "grading", "grading-cluster", "claims")  # not for learners
TITLE = "Scaling PyTorch training"
SECTION_CHARACTERS = 3000  # of a section, that the search looks through
BROKEN_LINKS_SHOWN = 5
_HREF = re.compile(r'(?:href|src)="([^"]+)"')
_ID = re.compile(r'\bid="([^"]+)"')
# of nbgrader
_MARKERS = re.compile(r"^ *### (?:BEGIN|END) SOLUTION\n?|=== END MARK SCHEME ===", re.M)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_BODY = re.compile(r"<(script|style|svg)\b.*?</\1>|<[^>]+>", re.S)
_SECTION = re.compile(r'<h[1-4] id="([^"]*)">(.*?)</h[1-4]>', re.S)
_INSIDE = re.compile(r'<h2 id="([^"]*)">(.*?)</h2>', re.S)
_CLAIM_OF_PART = re.compile(r"^\| (\d\d)(_\w+) \| (\d+)(_\w+) \|", re.M)


@dataclass
class Page:
    """One page: where it lies in the book, its title, and its body as HTML."""

    path: str
    title: str
    body: str


class Entry(NamedTuple):
    """A section in the search."""

    address: str  # path#id
    page: str  # the title of the page
    title: str
    text: str  # in small letters


def make_book(out: Path, learners: bool = False) -> list[Page]:
    """Write the book to the folder `out`, which is replaced; return its pages.

    Args:
        learners: leave out solutions, and documents for instructors.

    Raises: CourseError if `out` holds other files than a book, cannot be written, or a link leads
    nowhere.
    """
    is_book = (out / "search.js").exists()
    if out.exists() and not is_book and (not out.is_dir() or any(out.iterdir())):
        raise CourseError(
            f"{out} holds files of something other than a book; name a new or empty folder."
        )
    units = all_units()
    pages = [_index(units)]
    for unit in units:
        pages += [_page_of(part, learners) for part in unit.parts]
    pages += _documents(learners)
    broken = broken_links(pages)
    if broken:
        shown = "; ".join(broken[:BROKEN_LINKS_SHOWN])
        raise CourseError(f"links of the book that lead nowhere: {shown}")
    with atomic_folder(out) as new:
        for page in pages:
            path = new / page.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_whole(page, pages, units), encoding="utf-8")
        (new / "style.css").write_text(style() + asset("book.css"), encoding="utf-8")
        search = f"const SECTIONS = {json.dumps(_entries(pages))};\n{asset('book.js')}"
        (new / "search.js").write_text(search, encoding="utf-8")
    return pages


def _place(part):
    return f"{part.unit}/{part.name}.html"


def _index(units: list[Unit]) -> Page:
    """The first page: what the units ask, and how long they take."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    opening = readme.partition("\n\n")[2].partition("\n\n")[0]
    rows = ["<table><tr><th>part</th><th>question</th><th>minutes, core</th><th>in all</th></tr>"]
    for unit in units:
        title = f"{unit.name[:2]} {html.escape(unit.title)}"
        minutes = f"<th>{unit.core_minutes}</th><th>{unit.all_minutes}</th>"
        rows.append(f'<tr><th colspan="2">{title}</th>{minutes}</tr>')
        for part in unit.parts:
            link = f'<a href="{_place(part)}">{part.number} {html.escape(part.title)}</a>'
            minutes = f"<td>{part.core_minutes or '–'}</td><td>{part.all_minutes}</td>"
            rows.append(f"<tr><td>{link}</td><td>{html.escape(part.question)}</td>{minutes}</tr>")
    rows.append("</table>")
    return Page("index.html", TITLE, markdown(f"# {TITLE}\n\n{opening}") + "".join(rows))


def _documents(learners: bool) -> Iterator[Page]:
    """The Pages of docs/."""
    notes = sorted((ROOT / "docs" / "workshop").glob("*.md"))
    documents = [ROOT / "docs" / f"{name}.md" for name in DOCS]
    for path in [*documents, *notes]:
        if learners and (path.stem in TEACHERS or path in notes):
            continue
        text = path.read_text(encoding="utf-8")
        if path.stem == "claims":
            text = _short_places(text)
        place = path.relative_to(ROOT).with_suffix(".html").as_posix()
        yield Page(place, text.partition("\n")[0].lstrip("# "), _linked(markdown(text), learners))


def _short_places(text):
    """The table of claims with one narrow column for unit and part, which leads to the part."""
    text = text.replace("| unit | part |", "| part |").replace("|---|---|", "|---|", 1)
    return _CLAIM_OF_PART.sub(r"| [\1/\3](../\1\2/\3\4.ipynb) |", text)


def _page_of(part: Part, learners: bool) -> Page:
    body = _linked("".join(_cells(part, learners)), learners)
    return Page(_place(part), f"{part.unit[:2]}/{part.number} {part.title}", body)


def _cells(part: Part, learners: bool) -> Iterator[str]:
    """The cells of a part as HTML."""
    stubs = {}
    if learners:
        for cell in read_cells(ROOT / "notebooks" / part.unit / f"{part.name}.ipynb"):
            if cell.grade_id:
                stubs[cell.grade_id] = cell.source
    for cell in read_cells(solutions_folder() / part.unit / f"{part.name}.ipynb"):
        if (cell.grade_id or "").endswith(HIDDEN):
            continue
        is_folded = cell.takes_answer and not learners
        source = cell.source if learners else _MARKERS.sub("", cell.source)
        source = stubs.get(cell.grade_id, source)
        if cell.kind == "markdown":
            yield _text(source, is_folded)
        else:
            yield from _code(cell, source, is_folded)


def _text(source: str, is_folded: bool) -> str:
    source = source.replace("=== BEGIN MARK SCHEME ===", "**Mark scheme**\n\n")
    shown = markdown(_COMMENT.sub("", source))
    return _folded("A possible answer", shown) if is_folded else f"<section>{shown}</section>"


def _code(cell: Cell, source: str, is_folded: bool) -> Iterator[str]:
    """A code cell, of which this `source` is shown, with its outputs."""
    if source.strip():
        shown = code(source)
        yield _folded(f"Solution: {cell.grade_id}", shown) if is_folded else shown
    for item in cell.outputs:
        yield f'<div class="output">{output(item)}</div>'


def _folded(title, shown):
    return f'<details class="solution"><summary>{html.escape(title)}</summary>{shown}</details>'


def _linked(page: str, learners: bool) -> str:
    """`page` with links to documents and notebooks turned into links to their pages.

    Links to what is not in the book become text.
    """

    def turn(match):
        target, _, anchor = match[1].partition("#")
        if "://" in match[1] or not target or target.startswith("data:"):
            return match[0]
        is_note = "workshop/" in target
        name = Path(target).stem
        if target.endswith(".md") and (name in DOCS or is_note):
            if learners and (name in TEACHERS or is_note):
                return 'data-gone="1"'
            place = f"{target.removesuffix('.md')}.html"
            return f'href="{place}#{anchor}"' if anchor else f'href="{place}"'
        if target.endswith(".ipynb"):
            return f'href="{target.removesuffix(".ipynb")}.html"'
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
            if there not in ids or (anchor and anchor not in ids[there]):
                broken.append(f"{page.path} links to {target}")
    return broken


def _entries(pages: list[Page]) -> list[Entry]:
    """What the search looks through."""
    entries = []
    for page in pages:
        pieces = _SECTION.split(page.body)
        for anchor, title, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            words = html.unescape(_BODY.sub(" ", text)).split()
            plain = " ".join(words).lower()[:SECTION_CHARACTERS]
            entries.append(Entry(f"{page.path}#{anchor}", page.title, _BODY.sub("", title), plain))
    return entries


def _whole(page: Page, pages: list[Page], units: list[Unit]) -> str:
    """The HTML of a page, with navigation and search."""
    up = "../" * page.path.count("/")
    inside = "".join(f'<a href="#{anchor}">{t}</a>' for anchor, t in _INSIDE.findall(page.body))
    at = pages.index(page)
    around = pages[max(at - 1, 0) : at] + pages[at + 1 : at + 2]
    foot = " · ".join(_entry(p.path, p.title, up) for p in around)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(page.title)}</title>"
        f'<link rel="stylesheet" href="{up}style.css">'
        f'<body data-up="{up}"><nav>{_navigation(page, pages, units, up)}</nav>'
        f"<main>{page.body}<footer>{foot}</footer></main>"
        f'<aside>{inside}</aside><script src="{up}search.js"></script>'
        f"{figure_scripts(page.body)}</body></html>"
    )


def _navigation(page: Page, pages: list[Page], units: list[Unit], up: str) -> str:
    """Links from `page` to all pages, in front of which comes `up`, and the field of the search."""
    links = [
        f'<a class="home" href="{up}index.html">{TITLE}</a>',
        '<input id="search" type="search" placeholder="search" autocomplete="off">',
        '<div id="found"></div>',
    ]
    for unit in units:
        is_here = page.path.startswith(f"{unit.name}/")
        title = f"{unit.name[:2]} {html.escape(unit.title)}"
        links.append(f"<details {'open' if is_here else ''}><summary>{title}</summary>")
        for part in unit.parts:
            place = _place(part)
            links.append(_entry(place, f"{part.number} {part.title}", up, place == page.path))
        links.append("</details>")
    links.append("<hr>")
    for document in pages:
        if document.path.startswith("docs/") and document.path.count("/") == 1:
            links.append(_entry(document.path, document.title, up, document is page))
    return "".join(links)


def _entry(path, title, up, is_here=False):
    """A link to the page at `path`, which may be the one that the link is on."""
    mark = ' class="here"' if is_here else ""
    return f'<a{mark} href="{up}{path}">{html.escape(title)}</a>'


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=ROOT / "build" / "book",
    show_default="build/book",
    help="The folder of the book.",
)
@click.option("--learners", is_flag=True, help="Leave out solutions and what is for instructors.")
def book(out: Path, learners: bool) -> None:
    """Make static pages of all parts, with figures, folded solutions and a search.

    They need no network.

    \b
    Examples:
      course book
      course book --learners --out public
    """
    pages = make_book(out, learners)
    click.echo(f"{out}: {len(pages)} pages; open {out / 'index.html'}")
