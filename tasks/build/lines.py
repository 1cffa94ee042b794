"""The lines of large files, plain or compressed, one at a time: neither a file nor a line may fill the memory."""

from collections.abc import Iterator

from tasks.build.flow import MEBI, Flow, Limit, expanded, guarded
from tasks.build.source import Notes

LINE = 64 * MEBI  # bytes of the longest that is read
FILE = Limit(total=1 << 50)


def lines(place: str, notes: Notes, what: str = "lines", most: int = LINE) -> Iterator[bytes]:
    """Each line of a file, without its LF, the only line end; compression shows in the first bytes, not in the name.

    Lines over `most` bytes are noted under `what` and come empty, so that counting lines stays right. A file that is
    damaged or expands too far (`tasks.build.flow`) is read up to there, but for the line that breaks off, and
    noted; so is a file without lines, and one that cannot be opened.
    """
    yield from guarded(_opened(place, notes, what, most), notes)


def _opened(place: str, notes: Notes, what: str, most: int) -> Iterator[bytes]:
    with open(place, "rb") as raw:
        size = raw.seek(0, 2)
        raw.seek(0)
        head = raw.read(8)
        raw.seek(0)
        flow = Flow(expanded(raw, head) or raw, FILE.of(size))
        yield from _split(flow, notes, what, most)
        if not flow.tell():
            notes["files", "empty"] += 1


def _split(flow: Flow, notes: Notes, what: str, most: int) -> Iterator[bytes]:
    parts: list[bytes] = []  # of the line that has not ended yet
    size = 0

    def line() -> bytes:
        if size <= most:
            return b"".join(parts)
        notes[what, f"over {most // MEBI} MiB"] += 1
        return b""

    while chunk := flow.some():
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:
                yield line()
                parts, size = [], 0
            size += len(piece)
            if size <= most:
                parts.append(piece)
    if size:
        yield line()
