"""What stands in for a source in the tests of builds: files, tars, all that a reader finds; and for workers."""

import io
import tarfile
from collections import Counter


def wrote(top, files):
    for name, data in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return top


def read(source, path):
    """(documents, notes) of everything at a path."""
    notes = Counter()
    units = source.units(str(path), notes)
    assert [unit.name for unit in units] == sorted(unit.name for unit in units)
    return [document for unit in units for document in source.read(unit, notes)], +notes


def tar(files, pack=bytes, **more):
    """A tar of name -> contents, and of `more` TarInfos without contents."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, fields in more.items():
            info = tarfile.TarInfo(name)
            for key, value in fields.items():
                setattr(info, key, value)
            archive.addfile(info)
    return pack(out.getvalue())


class Killed(BaseException):
    """Stands for the end of a process: nothing of ours catches it."""


class OneByOne:
    """Workers without Beam.

    left: elements until the power goes off, -1 for never. begun: those that were begun.
    """

    def __init__(self, left=-1):
        self.left, self.begun = left, []

    def map(self, function, elements, fault):
        for element in elements:
            if not self.left:
                raise Killed
            self.left -= 1
            self.begun.append(element)
            function(element)
