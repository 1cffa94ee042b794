"""Where a build goes: what stands there already, and the hidden folder beside it in which it grows, one at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tasks.build import manifest
from tasks.build.folders import touched
from tasks.task import DataError


def standing(final: Path, identity: str, inputs: Iterable[str | Path]) -> bool:
    """Whether this very build is there already. DataError if something else is, or if an input is newer.

    inputs  what it is made of. Builds know their names and sizes (`identity`); whether contents changed in place shows
            only in the times of the files
    """
    if not os.path.lexists(final):
        return False
    if not (final / manifest.MANIFEST).is_file():
        raise DataError(f"{final} is there and was not built by this command; move it away, or choose another --out")
    if manifest.load(final).get("identity") != identity:
        raise DataError(
            f"{final} holds a build with other options or of other inputs; remove it, or choose another --out"
        )
    built = (final / manifest.MANIFEST).stat().st_mtime_ns
    if newer := next((place for place in inputs if touched(place) > built), None):
        raise DataError(
            f"{final} was built before {newer} was last written; remove it to build again, or choose another --out"
        )
    return True


@contextlib.contextmanager
def draft(final: Path) -> Iterator[Path]:
    """The folder in which `final` grows, for this process alone: fresh, or as an earlier try left it.

    DataError while another process builds there. Whoever dies, however suddenly, leaves it free.
    """
    folder = final.with_name(f".{final.name}.part")
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY)
        except (FileExistsError, NotADirectoryError):
            file = next(place for place in (folder, *folder.parents) if place.exists())
            raise DataError(
                f"{file} is a file, where a folder is wanted; move it away, or choose another --out"
            ) from None
        except FileNotFoundError:  # another build has just ended here
            continue
        try:
            _lock(handle, final)
            if _same(handle, folder):  # and not what another build has moved or removed since
                yield folder
                return
        finally:
            os.close(handle)


def _lock(handle: int, final: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(f"another build of {final} is running; wait for it, or choose another --out") from None
    except OSError:  # a file system that cannot lock
        pass


def _same(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False
