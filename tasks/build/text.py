"""From the bytes of a file to a text, or to the reason why it is none."""

import codecs

from tasks.build.source import Notes
from tasks.texts import clean, flaw

# Byte order marks, the longer ones first: that of UTF-32 begins with that of UTF-16.
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
NAMES = {"latin-1": "Latin-1"}


def decode(data: bytes, notes: Notes, what: str = "files", otherwise: str | None = "latin-1") -> str | None:
    """The text of a file, or None if it is empty or no text, which is noted under `what`.

    A byte order mark says how the file is to be read, and is no part of the text. Without one it is UTF-8; where it
    cannot be that, it is read by the codec `otherwise`, and as Latin-1, which can read anything, where that fails too;
    both are noted. With otherwise=None it is left out.

    Line ends become LF, whether they were CR LF or CR, since a model should not spend tokens on which system a file
    was written on. Nothing else is changed: other line ends of Unicode are characters like all others. A text with NULs
    is none, nor is one that consists of white space.
    """
    text = _read(data, notes, what, otherwise)
    if text is None:
        notes[what, "not UTF-8"] += 1
    elif reason := flaw(text) or ("" if text.strip() else "empty"):
        notes[what, reason] += 1
    else:
        return clean(text)
    return None


def _read(data: bytes, notes: Notes, what: str, otherwise: str | None) -> str | None:
    codec = next((codec for mark, codec in MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        if otherwise is None:
            return None
    try:
        text = data.decode(otherwise)
    except UnicodeDecodeError:
        text, otherwise = data.decode("latin-1"), "latin-1"
    if "\0" not in text:
        notes[what, f"read as {NAMES.get(otherwise, otherwise)}"] += 1
    return text
