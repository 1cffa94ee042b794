"""Pictures of one size, from wherever they lie: PNG files, a tar of them, TFDS, or arrays.

Every picture is looked at before it is promised: a PNG's header, chunk checksums and end, an array's type and shape.
What cannot be used is left out, said in one line each and counted. Pixels are decoded only when asked for.
"""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from tasks.logs import say
from tasks.spans import Files, Spans
from tasks.task import DataError

SIDE = 64
SHAPE = (SIDE, SIDE, 3)
LOADED_AT_MOST = 2 << 30  # bytes of a compressed array, which cannot be mapped, that may be kept in memory
LISTED_AT_MOST = 10  # lines about pictures that cannot be used
HASHED_AT_MOST = 4096  # pictures that go into the checksum of a large set, spread evenly over it

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey with transparency", 6: "RGB with transparency"}


class Pictures(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> np.ndarray:
        """uint8 [64, 64, 3]: row, column, channel (red, green, blue)."""
        ...


class Arrays:
    """Pictures in uint8 arrays, one after the other: [n, 64, 64, 3], or [n, 12288] with the channels outermost."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays
        self.ends = np.cumsum([len(array) for array in arrays])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, index: int) -> np.ndarray:
        which = int(np.searchsorted(self.ends, index, side="right"))
        array = self.arrays[which]
        picture = np.asarray(array[index - self.ends[which] + len(array)])
        return picture.reshape(3, SIDE, SIDE).transpose(1, 2, 0) if picture.ndim == 1 else picture


class Encoded:
    """Pictures in PNG. Grey and palette become RGB, which is exact."""

    def __init__(self, spans: Spans | Files):
        self.spans = spans

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: int) -> np.ndarray:
        from PIL import Image

        try:
            with Image.open(io.BytesIO(self.spans[index]), formats=("PNG",)) as image:
                return np.asarray(image.convert("RGB"))
        except OSError as error:  # its checksums were right, so it was written wrong
            raise DataError(f"{self.spans.label(index)} cannot be decoded: {error}") from None


def usable(spans: Spans | Files, what: str) -> Encoded:
    """The PNGs among `spans` that hold a 64x64 picture in 8 bits without transparency; the log names the others."""
    faults = [(index, fault) for index in range(len(spans)) if (fault := png_fault(spans[index]))]
    for index, fault in faults[:LISTED_AT_MOST]:
        say(f"{what}: {spans.label(index)} is left out: {fault}")
    if len(faults) > LISTED_AT_MOST:
        say(f"{what}: {len(faults):,} pictures are left out in all")
    if len(faults) == len(spans):
        reason = f"the first: {faults[0][1]}" if faults else "there are none"
        raise DataError(f"{what}: not one usable picture ({reason})")
    return Encoded(spans.take(np.setdiff1d(np.arange(len(spans)), [index for index, _ in faults])))


def png_fault(data: bytes) -> str | None:
    """What makes these bytes no PNG of a 64x64 picture that is RGB in 8 bits without loss; None if nothing does."""
    if not data:
        return "empty (0 bytes)"
    if not data.startswith(_SIGNATURE):
        return "not a PNG"
    at, names = len(_SIGNATURE), []
    while at + 12 <= len(data):
        size, name = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body, at = at + 8, at + size + 12
        if at > len(data):
            break
        if zlib.crc32(data[body - 4 : body + size]) != int.from_bytes(data[at - 4 : at], "big"):
            return f"damaged (checksum of chunk {name.decode('latin1')!r})"
        if name == b"IHDR" and (fault := _header_fault(data[body : body + size])):
            return fault
        names.append(name)
        if name == b"IEND":
            if b"tRNS" in names:
                return "it has transparency"
            return None if b"IHDR" in names and b"IDAT" in names else "damaged (chunks are missing)"
    return "cut short"


def _header_fault(header: bytes) -> str | None:
    width, height = (int.from_bytes(header[at : at + 4], "big") for at in (0, 4))
    depth, colour = header[8], header[9]
    if (height, width) != (SIDE, SIDE):
        return f"{width}x{height} pixels, {SIDE}x{SIDE} wanted"
    if colour not in (0, 2, 3) or (depth != 8 and colour != 3):
        return f"{_COLOURS.get(colour, f'colour type {colour}')} in {depth} bits; RGB in 8 bits wanted"
    return None


def open_array(file: Path) -> np.ndarray:
    """The uint8 pictures in a .npy file, or in member `data` of a .npz; mapped, unless it is compressed.

    DataError with one line for anything else.
    """
    try:
        array = _open_npz(file) if file.suffix == ".npz" else np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{file} is not a usable {file.suffix} file ({error}); fetch it again") from None
    if array.dtype != np.uint8:
        raise DataError(f"{file} holds {array.dtype} numbers; uint8 wanted (0 to 255)")
    if array.shape[1:] not in (SHAPE, (int(np.prod(SHAPE)),)):
        raise DataError(f"{file} has shape {list(array.shape)}; [n, 64, 64, 3], or [n, 12288] by channels, wanted")
    if not len(array):
        raise DataError(f"{file} holds no picture (shape {list(array.shape)})")
    return array


def _open_npz(file: Path) -> np.ndarray:
    with zipfile.ZipFile(file) as archive:
        if "data.npy" not in archive.namelist():
            held = ", ".join(name.removesuffix(".npy") for name in archive.namelist()[:5]) or "nothing"
            raise DataError(f"{file} has no array called data (it holds {held})")
        member = archive.getinfo("data.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            if member.file_size > LOADED_AT_MOST:
                raise DataError(
                    f"{file} is compressed and too large to be kept in memory ({member.file_size:,} bytes); unpack it "
                    f"once: unzip -p {file.name} data.npy > {file.stem}.npy"
                )
            with archive.open(member) as plain:
                return np.lib.format.read_array(plain, allow_pickle=False)
    with open(file, "rb") as raw:  # the member lies there as it is: behind its local header, 30 bytes and two names
        raw.seek(member.header_offset + 26)
        names = [int.from_bytes(raw.read(2), "little") for _ in range(2)]
        raw.seek(sum(names), 1)
        version = np.lib.format.read_magic(raw)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read:
            raise ValueError(f"npy version {version}")
        shape, fortran, kind = read[version](raw)
        if kind.hasobject:
            raise ValueError("it holds Python objects")
        return np.memmap(file, kind, "r", raw.tell(), shape, "F" if fortran else "C")


def digest(pictures: Pictures) -> str:
    """SHA-256 of number and pixels, so that it does not depend on the container; of large sets a fixed part is read."""
    count = len(pictures)
    chosen = np.unique(np.linspace(0, count - 1, min(count, HASHED_AT_MOST)).astype(np.int64))
    sums = hashlib.sha256(f"{count} ".encode())
    for index in chosen:
        sums.update(np.ascontiguousarray(pictures[int(index)]).data)
    return sums.hexdigest()


def shrink(picture: np.ndarray, side: int) -> np.ndarray:
    """uint8 [side, side, 3]: means over equal squares of a uint8 [64, 64, 3], halves rounded up. `side` divides 64."""
    times = SIDE // side
    sums = picture.reshape(side, times, side, times, 3).sum(axis=(1, 3), dtype=np.uint32)
    return ((sums + times * times // 2) // (times * times)).astype(np.uint8)


def tokens_of(picture: np.ndarray) -> np.ndarray:
    """int32 [3 * side * side]: row by row, column by column, the channel fastest; an id is a channel's value."""
    return picture.astype(np.int32).reshape(-1)


def picture_of(tokens) -> np.ndarray:
    """uint8 [side, side, 3] of ids [3 * side * side]: the inverse of `tokens_of`. ValueError for anything else."""
    tokens = np.asarray(tokens)
    side = round((tokens.size / 3) ** 0.5)
    if tokens.ndim != 1 or tokens.size != 3 * side * side or not tokens.size:
        raise ValueError(f"a square picture has 3 x side x side ids in one row, got shape {list(tokens.shape)}")
    if not 0 <= tokens.min() <= tokens.max() <= 255:
        raise ValueError(f"ids of a picture lie from 0 to 255, got {tokens.min()} to {tokens.max()}")
    return tokens.astype(np.uint8).reshape(side, side, 3)
