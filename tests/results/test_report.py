"""The page and README.md: complete, self-contained, the same bytes each time, and not stale."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from results import figures, report, reported, schema, tables

VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Collects text, loaded addresses and ids, and checks that tags are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loaded, self.ids, self.text = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.loaded += [
            value for name, value in attributes.items() if name in ("src", "data", "action") or tag == "link"
        ]
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


@pytest.fixture(scope="module")
def records(tmp_path_factory, fill, put_into):
    """A full table, an overridden run with hostile names, a record under no table, and a foreign file."""
    folder = fill(tmp_path_factory.mktemp("report") / "records")
    put_into(folder, seed=7, overrides=["NAME = '<b>|x|</b>'"], config="A = '<script>alert(1)</script>'\n")
    put_into(folder, stem="reformer/table9/x")
    (folder / "reformer/table2/lsh4/foreign.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def pages(records):
    """(HTML text, README text, the folder they are in)."""
    folder = records.parent / "out"
    report.write(records, folder)
    return (folder / "index.html").read_text(), (folder / "README.md").read_text(), folder


def test_the_page_is_whole_and_loads_nothing(pages):
    page = Page(pages[0])
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.loaded)
    assert len(page.loaded) == 2
    assert not re.search(r"@import|url\(|<script", pages[0])
    assert len(set(page.ids)) == len(page.ids) == len(reported.tables())
    text = " ".join(" ".join(page.text).split())
    for expected in ("99.89", "+99.09", "not run", "0123abc", "812 MB", "duplication_256 f00", "2.69†", "foreign.json",
                     "<script>alert(1)</script>", "NAME = '<b>|x|</b>'", "reformer/table9/x"):  # fmt: skip
        assert expected in text, expected


def test_the_page_has_every_reported_number(pages):
    text = " ".join(Page(pages[0]).text)
    for table in reported.tables().values():
        assert all(cell.text in text for cell in table.cells.values()), table.name


def test_the_readme_has_every_reported_number_and_every_record(pages):
    text = pages[1]
    for table in reported.tables().values():
        # Formulas are escaped where Markdown would take their signs for emphasis.
        assert all(cell.text.replace("*", "\\*") in text for cell in table.cells.values()), table.name
    assert len(re.findall(r"^\| (reformer|memorizing)/\S+.* \| 0123abc \|$", text, re.M)) == 14
    assert "NAME = '&lt;b>\\|x\\|&lt;/b>'" in text


def test_rows_of_markdown_tables_are_as_long_as_their_heads(pages):
    for block in re.findall(r"(?:^\|.*\n)+", pages[1], re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


def test_links_and_pictures_of_the_readme_exist(pages):
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", pages[1]):
        assert (pages[2] / path).exists()
    assert (report.HERE / "deviations.md").exists()


def test_writing_again_gives_the_same_bytes_and_removes_pictures_shown_no_longer(pages, records, tmp_path):
    old = tmp_path / "figures" / "old.png"
    old.parent.mkdir()
    old.write_bytes(b"")
    before = report.README.read_bytes()
    written = report.write(records, tmp_path)
    assert sorted(written) == sorted(path for path in tmp_path.rglob("*.*"))
    for path in written:
        assert path.read_bytes() == (pages[2] / path.relative_to(tmp_path)).read_bytes(), path.name
    # Records from elsewhere never reach the committed page.
    assert report.README.read_bytes() == before


def test_no_records_at_all(tmp_path):
    report.write(tmp_path / "none", tmp_path / "out")
    assert "None yet." in (tmp_path / "out" / "README.md").read_text()
    Page((tmp_path / "out" / "index.html").read_text())


def test_figures_show_what_was_measured(whole_table, make):
    records, _ = schema.read_all(whole_table)
    table = reported.find("reformer/table2")
    drawn = figures.draw(tables.compare(table, records))
    paper, measured = drawn["rounds"].axes
    assert [axis.get_title() for axis in (paper, measured)] == [
        "reported by the paper",
        "measured, scale cpu (seeds 0, 1, 2)",
    ]
    assert list(measured.containers[0].lines[0].get_ydata()) == pytest.approx([59.99, 87.99, 96.99, 98.99, 99.99])
    assert list(paper.containers[1].lines[0].get_ydata()) == [91.9, 99.4, 99.9, 100, 0.8]
    # One line and one end marker per row and seed.
    assert len(drawn["curves"].axes[0].lines) == 4 * 3 * 2
    # A record without a curve has no curve drawn; a lone row has its cells drawn.
    assert set(figures.draw(tables.compare(table, [make(curve={})]))) == {"rounds"}


def test_the_committed_readme_and_pictures_are_those_of_the_records():
    """If this fails: run `make report` and commit results/README.md and results/figures with the records."""
    assert report.README.read_text(encoding="utf-8") == report.generate_markdown(), "stale: run `make report`"
    expected = report.expected_pictures()
    found = {path.relative_to(report.HERE).as_posix() for path in (report.HERE / "figures").glob("*.png")}
    assert found == set(expected), "stale: run `make report`"
    for path, fingerprint in expected.items():
        with Image.open(Path(report.HERE) / path) as picture:
            assert picture.info["Description"] == fingerprint, f"{path} is stale: run `make report`"


def test_a_table_without_reported_numbers_is_drawn(make):
    """A plot of the paper whose values were not found: its rows are measured all the same."""
    table = reported.find("reformer/figure5")
    assert table.units == ["bits/dim"]
    curve = {"step": [1, 2], "bits_per_byte": [3.0, 2.0]}
    comparison = tables.compare(table, [make(stem="reformer/figure5/layers3", curve=curve)])
    shown = figures._curves_data(comparison)
    assert shown == {"scale cpu": {"layers3": {"0": [[1, 2], [3.0, 2.0]]}}}
    assert figures.save(figures._curves(table, shown), "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["memorizing/table4", "memorizing/table5", "reformer/figure5", "reformer/table2"])
def test_legends_fit_into_their_pictures(name):
    table = reported.find(name)
    shown = {"scale cpu": {row: {"0": [[1, 2], [3.0, 2.0]]} for row in table.rows}}
    figure = figures._curves(table, shown)
    figures.save(figure, "png")
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert box.x0 >= 0 and box.x1 <= whole.x1
