"""What stands for a source in the tests of builds: files on a disk, tars, and everything that a reader finds."""

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
