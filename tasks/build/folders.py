"""Files in folders, by path, without following links out of them."""

import os
import time
from collections.abc import Iterator

from tasks.build.source import Notes


def files(top: str, notes: Notes, links: bool = False) -> Iterator[tuple[str, str]]:
    """(path from `top` on with '/', what to open) of every file below a folder; a folder's before its sub-folders'.

    Links, sockets and the like, and folders that cannot be looked into are left out and noted.

    links  take links to files for the files: where a user has put them, as tools that fetch data do, and no stranger
    """
    waiting = [("", top)]  # the next one last
    while waiting:
        path, place = waiting.pop()
        below = []
        for entry in entries(place, notes):
            name = path + entry.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            if entry.is_symlink() and not (links and entry.is_file()):
                notes["links", "in folders"] += 1
            elif entry.is_dir(follow_symlinks=False):
                below.append((f"{name}/", entry.path))
            elif entry.is_file():
                yield name, entry.path
            else:
                notes["files", "that are not plain files"] += 1
        waiting += reversed(below)


def entries(place: str | os.PathLike[str], notes: Notes) -> list[os.DirEntry[str]]:
    """What lies in a folder, by name; nothing, which is noted, if it cannot be read."""
    try:
        with os.scandir(place) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        notes["folders", "unreadable"] += 1
        return []


def size(place: str) -> int:
    """Bytes of a file, or 0 if nothing can be told of it."""
    try:
        return os.stat(place).st_size
    except OSError:
        return 0


def touched(place: str | os.PathLike[str]) -> int:
    """When a file, or the last of those in a folder, was written, in nanoseconds; 0 if nothing can be told.

    Times that are still to come tell nothing: files of archives have them, and would seem new for years. What git keeps
    for itself beside a working tree does not count: it is written by looking at it.
    """
    if not os.path.isdir(place):
        return _written(place)
    latest = 0
    for folder, below, held in os.walk(place):
        below[:] = [name for name in below if name != ".git"]
        latest = max([latest, *(_written(os.path.join(folder, name)) for name in held)])
    return latest


def _written(place: str | os.PathLike[str]) -> int:
    try:
        written = os.stat(place).st_mtime_ns
    except OSError:
        return 0
    return written if written <= time.time_ns() else 0


def content(place: str, notes: Notes, most: int) -> bytes | None:
    """The bytes of a file; None, which is noted, if it cannot be read, is gone by now or has more than `most`."""
    try:
        with open(place, "rb") as file:
            data = file.read(most + 1)
    except OSError:
        notes["files", "unreadable"] += 1
        return None
    if len(data) > most:
        notes["files", f"over {most >> 20} MiB"] += 1
        return None
    return data
