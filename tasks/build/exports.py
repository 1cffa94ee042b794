"""GitHub's public data set as BigQuery exports it: files of JSON lines, one a file of a repository.

A line has repo_name, path, content and, if the query joined it, license. Rows of a repository have to be neighbours:

    SELECT f.repo_name, f.path, l.license, c.content
    FROM `bigquery-public-data.github_repos.files` f
    JOIN `bigquery-public-data.github_repos.contents` c USING (id)
    JOIN `bigquery-public-data.github_repos.licenses` l USING (repo_name)
    WHERE REGEXP_CONTAINS(f.path, r'(\\.(c|h|cc|cpp|cxx|hh|hpp|hxx|java|py|go|ts|tsx)|LICEN[CS]E[^/]*|COPYING[^/]*)$')
    ORDER BY f.repo_name, f.path

An export is cut into files anywhere. So that each can be read alone, a repository belongs to the file that holds the
row before its first one, and the very first to the first file: a reader leaves out what its file begins with, and reads
on into the next files to the end of what begins there.
"""

import gzip
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.build.source import Notes
from tasks.task import DataError
from tasks.texts import json_lines

SUFFIXES = (".json", ".json.gz")


def is_export(path: Path) -> bool:
    """Whether one of a file's first lines is a row of an export; the very first may be damaged."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            return any(_is_row(lines.readline(2**26)) for _ in range(16))
    except (OSError, EOFError, zlib.error):
        return False


def _is_row(line: bytes) -> bool:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and "repo_name" in row and "content" in row


def repositories(place: Path, notes: Notes) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """(name, rows) of each repository that belongs to a file of an export; a row's content is its 'text'.

    The rows of one have to be read before the next.
    """
    files = [path for path in sorted(place.parent.iterdir()) if path.name.endswith(SUFFIXES)]
    number = files.index(place)
    grouped = itertools.groupby(_rows(files[number:], notes), key=lambda row: row[1]["repo_name"])
    for count, (name, rows) in enumerate(grouped):
        beyond, row = next(rows)
        if number == 0 if count == 0 else beyond < 2:
            yield name, itertools.chain([row], (row for _, row in rows))
        if beyond:
            return


def _rows(files: list[Path], notes: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
    """(how many rows behind the first file, 0 in it; row). What is no row is noted for the first file only."""
    beyond = 0
    for number, path in enumerate(files):
        own = Counter() if number else notes
        try:
            for _, row in json_lines(path, "files", own, key="content"):
                if isinstance(row.get("repo_name"), str):
                    beyond += number > 0
                    yield beyond, row
                else:
                    own["files", "without a repository"] += 1
        except DataError:  # of a compressed file that breaks off
            own["archives", "kept up to where they are damaged"] += 1
