"""The report: one self-contained HTML page, and `results/README.md` with its pictures, both made from the records."""

from pathlib import Path

from results import figures, markdown, page, reported, schema, tables

HERE = Path(__file__).parent
README = HERE / "README.md"
OUT = Path("runs/report")


def write(records_dir=schema.RECORDS, out=OUT, readme=None):
    """Writes `out`/index.html and the README with its pictures (`figures/` beside it); returns the paths written.

    The README is results/README.md only for this checkout's own records: others must not end up in the committed page,
    so theirs is written into `out`.
    """
    if readme is None:
        own = Path(records_dir).resolve() == schema.RECORDS.resolve()
        readme = README if own else Path(out) / "README.md"
    comparisons, homeless, problems = gather(records_dir)
    drawn = {one.table.name: figures.draw(one) for one in comparisons if one.measured}
    written = [_put(Path(out) / "index.html", page.generate(comparisons, homeless, problems, drawn).encode())]
    folder = Path(readme).parent
    pictures = []
    for one in comparisons:
        for kind, (path, _, description) in _pictures(one).items():
            pictures.append(_put(folder / path, figures.save(drawn[one.table.name][kind], "png", description)))
    for old in set((folder / "figures").glob("*.png")) - set(pictures):
        old.unlink()  # no longer shown
    return [*written, *pictures, _put(readme, generate_markdown(records_dir).encode())]


def generate_markdown(records_dir=schema.RECORDS):
    """The text that README.md should have."""
    comparisons, homeless, problems = gather(records_dir)
    pictures = {one.table.name: [told[:2] for told in _pictures(one).values()] for one in comparisons}
    return markdown.generate(comparisons, homeless, problems, pictures)


def expected_pictures(records_dir=schema.RECORDS):
    """The pictures that README.md shows: {path beside it: fingerprint that the file carries as its Description}."""
    comparisons, _, _ = gather(records_dir)
    return {path: description for one in comparisons for path, _, description in _pictures(one).values()}


def _pictures(comparison):
    """{kind: (path beside README.md, caption, fingerprint)}; none for a table without measurements."""
    told = figures.describe(comparison) if comparison.measured else {}
    name = comparison.table.name.replace("/", "-")
    return {kind: (f"figures/{name}-{kind}.png", caption, mark) for kind, (caption, mark) in told.items()}


def gather(records_dir=schema.RECORDS):
    """(comparisons of all reported tables, records under no table, [(name, problem) of unusable files])."""
    records, problems = schema.read_all(records_dir)
    known = reported.tables()
    comparisons = [tables.compare(table, records) for table in known.values()]
    named = [(one.path.relative_to(records_dir).as_posix(), one.text) for one in problems]
    return comparisons, tables.homeless(records, known), named


def _put(path, content):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
