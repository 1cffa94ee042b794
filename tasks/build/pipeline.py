"""From a source to records: two passes over shards, with Apache Beam, and a plan between them.

    1. `parts`  each shard of units is read into one part file, on whichever worker gets it
    2. `plan`   near duplicates are found, splits made, duplicates dropped: from facts alone, here
    3. `pack`   each record file is copied together from the parts, on whichever worker gets it

<out>/<corpus>/1.0.0/ appears in one step, by renaming, when everything in it is written. Until then all lies in a
hidden folder beside it, which the same command continues: shards that are whole are not read again, unless a file of
theirs was written since. One build at a time is made in one place. Nothing in the result depends on the number of
workers, on where shards are cut, on the order in which they end, or on the clock.

Workers share a file system, which has the source and `out` under the same paths. Without Beam's own options they are
processes of this machine. One document is in memory at a time; the plan holds about a kilobyte for each.
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tasks.build import drafts, manifest, pack
from tasks.build.parts import Shard, build_part, cut, facts, facts_file, is_read, whole
from tasks.build.plan import Plan, Splitting, plan
from tasks.build.source import Notes, Source, Unit
from tasks.build.workers import Unwatched, Watch, Workers, watched
from tasks.codecs import codec
from tasks.task import DataError
from tasks.tokenised import told

# The feature that holds a document's text, where TFDS has a data set of the corpus and calls it otherwise.
TEXT = {"pg19": "book_text"}


@dataclass(frozen=True)
class Job:
    """What to build, of what.

    paths       where the source lies; with several, the units of each are named after its last part
    vocabulary  'bytes' or a SentencePiece model: tokens are counted in it; None counts none
    """

    source: Source
    paths: tuple[str, ...]
    splitting: Splitting = field(default_factory=Splitting)
    vocabulary: str | None = None

    @property
    def features(self) -> tuple[str, str]:
        """Of a record: what holds the document's text, and what its name."""
        return TEXT.get(self.source.name, "text"), "name"

    def options(self) -> dict[str, Any]:
        """The source's options, with files by what is in them: where they lie decides nothing."""
        named = asdict(self.source)  # type: ignore[call-overload]
        if "vocabulary" in named:
            named["vocabulary"] = self.words()
        return named | {name: _contents(named[name]) for name in getattr(self.source, "files", ()) if named[name]}

    def words(self) -> str | None:
        return codec(self.vocabulary).name if self.vocabulary else None

    def units(self, notes: Notes) -> list[Unit]:
        """What there is to read, by name. DataError if it is nothing."""
        paths = [os.path.abspath(os.path.expanduser(path)) for path in self.paths]  # the same for all workers
        if len(paths) == 1:
            units = self.source.units(paths[0], notes)
        else:
            titles = [Path(path).name for path in paths]
            if len(set(titles)) < len(titles):
                raise DataError(
                    f"{self.source.name}: sources need distinct names, got {', '.join(titles)}; rename or link one"
                )
            found = [self.source.units(path, notes) for path in paths]
            units = [
                replace(unit, name=f"{title}/{unit.name}")
                for title, some in zip(titles, found, strict=True)
                for unit in some
            ]
        if not units:
            raise self.nothing(notes)
        return sorted(units)

    def nothing(self, notes: Notes) -> DataError:
        seen = f": {told(notes)}" if notes else ""
        return DataError(f"{self.source.name}: nothing to use in {', '.join(self.paths)}{seen}")

    def identity(self, units: list[Unit]) -> str:
        """A checksum of what decides the result: options, and names and sizes of the units."""
        listed = [(unit.name, unit.size) for unit in units]
        decisive = [manifest.FORMAT, self.source.name, self.options(), asdict(self.splitting), self.words(), listed]
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()


def build(job: Job, out: str | Path, workers: Workers | None = None, watch: Watch | None = None) -> Path:
    """Builds a corpus and returns its folder, <out>/<name>/1.0.0; at once if it is there already.

    DataError for a source that cannot be used, for another build in that place, and for a missing Beam.
    """
    workers, watch = workers or Workers(), watch or Unwatched()
    final = Path(out).expanduser().resolve() / job.source.name / pack.VERSION
    _check_outside(final, job.paths)
    notes: Notes = Counter()
    units = job.units(notes)
    identity = job.identity(units)
    with drafts.draft(final) as draft:
        if not drafts.standing(final, identity, [unit.place for unit in units]):
            parts, ready = _prepared(draft, identity)
            planned = _first_pass(job, cut(units), parts, ready, notes, workers, watch)
            files = _second_pass(job, planned, parts, ready, workers, watch)
            manifest.write_documents(planned, ready)
            manifest.write_inputs(units, ready)
            pack.describe(job.source.name, files, (*job.features, "licence", "source"), ready)
            manifest.write({"identity": identity, **_facts(job, planned, files, notes, units)}, ready)
            ready.rename(final)
        shutil.rmtree(draft)
    return final


@lru_cache
def _contents(path: str) -> dict[str, Any]:
    return {"name": Path(path).name, **manifest.checksum(Path(path).expanduser())}


def _check_outside(final: Path, paths: Sequence[str]) -> None:
    for path in paths:
        if final.is_relative_to(Path(path).expanduser().resolve()):
            raise DataError(f"{final} lies in the source {path} and would be read as part of it; choose another --out")


def _prepared(draft: Path, identity: str) -> tuple[Path, Path]:
    """Where parts and finished files go: empty, or as an earlier try of the same build left them."""
    mark, parts, ready = draft / "identity", draft / "parts", draft / "ready"
    if not mark.exists() or mark.read_text() != identity:
        for folder in (parts, ready):
            shutil.rmtree(folder, ignore_errors=True)
    for folder in (parts, ready):
        folder.mkdir(exist_ok=True)
        for half in folder.glob(".*"):  # of a try that was killed while it wrote
            half.unlink()
    with whole(mark) as out:
        out.write(identity.encode())
    return parts, ready


def _first_pass(
    job: Job, shards: list[Shard], parts: Path, ready: Path, notes: Notes, workers: Workers, watch: Watch
) -> Plan:
    sizes = {facts_file(parts, shard.number): shard.size for shard in shards}
    left = [shard for shard in shards if not is_read(parts, shard)]
    if left:  # what was written of other parts may have to be written otherwise
        for old in (*ready.iterdir(), *parts.glob("*.sha256"), *(facts_file(parts, shard.number) for shard in left)):
            old.unlink(missing_ok=True)
    with watched("reading", sizes, watch):
        workers.map(
            partial(_read, job.source, str(parts), job.features, job.vocabulary, len(job.paths) > 1),
            left,
            parts / "fault",
        )
    held = [facts(parts, shard.number) for shard in shards]
    for _, left_out in held:
        notes.update(left_out)
    planned = plan([entries for entries, _ in held], job.splitting)
    notes.update(planned.notes)
    if not any(planned.splits.values()):
        raise job.nothing(notes)
    return planned


def _second_pass(
    job: Job, planned: Plan, parts: Path, ready: Path, workers: Workers, watch: Watch
) -> dict[str, list[pack.File]]:
    files = {split: pack.files(job.source.name, split, members) for split, members in planned.splits.items()}
    every = [file for some in files.values() for file in some]
    with watched("writing", {ready / file.name: file.size for file in every}, watch):
        workers.map(
            partial(_pack, str(parts), str(ready)),
            [file for file in every if not pack.done(file, parts)],
            parts / "fault",
        )
    return files


# What workers are sent: functions of this module, which they import, with plain arguments.
def _read(
    source: Source, parts: str, features: tuple[str, str], vocabulary: str | None, mixed: bool, shard: Shard
) -> None:
    build_part(source, shard, Path(parts), features, vocabulary, mixed)


def _pack(parts: str, ready: str, file: pack.File) -> None:
    pack.pack(file, Path(parts), Path(ready))


def _facts(
    job: Job, planned: Plan, files: dict[str, list[pack.File]], notes: Notes, units: list[Unit]
) -> dict[str, Any]:
    found = manifest.counts(planned, job.vocabulary is not None)
    return {
        "corpus": job.source.name,
        "splits": {split: {**found[split], "files": [file.name for file in files[split]]} for split in found},
        "vocabulary": job.words(),
        "licences": manifest.licences(planned),
        "notes": manifest.told(notes),
        "alike": {"documents": len(planned.first), "companies": len(set(planned.first.values()))},
        "splitting": job.splitting.rule(),
        "options": job.options(),
        "features": dict(zip(("text", "name"), job.features, strict=True)),
        "inputs": {"units": len(units), "bytes": sum(unit.size for unit in units)},
        "versions": manifest.versions(),
    }
