"""Records: written whole or not at all, validated on the way in and out, never the death of a table."""

import json
import os

import pytest

from results import schema

FULL = {
    "schema": 1,
    "stem": "reformer/table2/lsh4",
    "scale": "cpu",
    "seed": 3,
    "steps": 400,
    "overrides": [],
    "commit": "0123abc",
    "dirty": False,
    "config": "STEPS = 400\n",
    "data": {"task": "duplication_256", "fingerprint": "f00"},
    "devices": {"platform": "cpu", "kind": "cpu", "count": 1},
    "started": "2026-01-31T09:00:00+00:00",
    "finished": "2026-01-31T10:01:02+01:00",
    "wall_seconds": 62,
    "peak_memory_bytes": 1000,
    "parameters": 7,
    "tokens_per_second": 12.5,
    "evaluations": {
        "lsh8": {
            "split": "test",
            "draws": 2,
            "examples": 8,
            "weight": 1016,
            "metrics": {
                "accuracy": {"value": 99.5, "unit": "%", "better": "higher", "spread": 0.5, "per_draw": [99.0, 100]}
            },
        }
    },
    "curve": {"step": [1, 2], "nats_per_token": [4.8, 0.5]},
    "versions": {"python": "3.11"},
}


def changed(*path, value):
    """FULL with one field, given by its path, set to `value` (or dropped if value is Ellipsis)."""
    plain = json.loads(json.dumps(FULL))
    place = plain
    for key in path[:-1]:
        place = place[key]
    place.pop(path[-1], None)
    if value is not ...:
        place[path[-1]] = value
    return plain


def store(plain, records_dir):
    return schema.write(plain, schema.path_of(schema.Record.from_dict(plain), records_dir))


def test_what_is_written_is_what_is_read(tmp_path):
    record = schema.Record.from_dict(FULL)
    path = schema.write(record, schema.path_of(record, tmp_path))
    assert path.relative_to(tmp_path).as_posix() == "reformer/table2/lsh4/cpu-seed3-20260131T090102Z.json"
    assert json.loads(path.read_text()) == FULL
    assert schema.read(path) == record
    assert schema.read_all(tmp_path) == ([record], [])


def test_a_dict_can_be_written_anywhere(tmp_path):
    path = schema.write(FULL, tmp_path / "run" / "record.json")
    schema.write({**FULL, "seed": 4}, path)
    assert schema.read(path).seed == 4
    assert [one.name for one in path.parent.iterdir()] == ["record.json"]


def test_a_record_never_takes_the_place_of_another(tmp_path):
    other = {**FULL, "overrides": ["STEPS = 400"]}
    home = tmp_path / "reformer/table2/lsh4"
    names = ["cpu-seed3-20260131T090102Z.json", "cpu-seed3-20260131T090102Z-2.json"]
    assert [schema.add(plain, tmp_path) for plain in (FULL, other)] == [home / name for name in names]
    # The same one again is left where it is, under either name.
    assert [schema.add(plain, tmp_path) for plain in (FULL, other)] == [home / name for name in names]
    assert schema.add({**FULL, "seed": 4}, tmp_path).name == "cpu-seed4-20260131T090102Z.json"
    records, problems = schema.read_all(tmp_path)
    assert not problems
    assert sorted((record.seed, record.overrides) for record in records) == [(3, []), (3, ["STEPS = 400"]), (4, [])]
    assert len(list(home.iterdir())) == 3
    assert (home / names[0]).stat().st_mode & 0o777 == 0o644


def test_records_are_kept_apart_without_links_too(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert schema.add(FULL, tmp_path) != schema.add({**FULL, "steps": 5}, tmp_path)
    assert {record.steps for record in schema.read_all(tmp_path)[0]} == {400, 5}


METRIC = ("evaluations", "lsh8", "metrics", "accuracy")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema",), ..., "schema.*None.*is this a record"),
        (("schema",), 2, "received 2; wanted 1 .*update"),
        (("schema",), True, "received True"),
        (("stem",), "../../etc", "stem.*wanted a path such as"),
        (("stem",), "lsh4", "stem"),
        (("scale",), "a/b", "scale"),
        (("seed",), 1.0, "'seed': received 1.0; wanted a whole number"),
        (("seed",), True, "seed"),
        (("seed",), -1, "at least 0"),
        (("steps",), ..., "'steps': missing"),
        (("stepz",), 4, "'stepz': no such field; did you mean 'steps'"),
        (("overrides",), "STEPS = 1", "overrides.*wanted a list"),
        (("overrides",), [1], r"overrides\[0\].*wanted text"),
        (("dirty",), 0, "true or false"),
        (("wall_seconds",), "62", "a finite number"),
        (("wall_seconds",), float("nan"), "nan; wanted a finite number"),
        (("parameters",), 10**400, "parameters.*whole number"),
        (("tokens_per_second",), 10**400, "tokens_per_second.*finite"),
        (("data",), [], "'data'.*an object"),
        (("devices", "count"), 0, "devices.count"),
        (("devices", "speed"), 0, "devices.speed"),
        (("started",), "2026-01-31T09:00:00", "offset"),
        (("started",), "yesterday", "ISO time"),
        (("finished",), "9999-12-31T23:59:59-14:00", "ISO time"),
        (METRIC + ("better",), "more", "lsh8.metrics.accuracy.better.*'higher', 'lower' or 'none'"),
        (METRIC + ("value",), float("inf"), "accuracy.value.*finite"),
        (METRIC + ("value",), None, "finite"),
        (METRIC + ("spread",), -0.1, "at least 0"),
        (METRIC + ("per_draw",), [1.0], "per_draw.*wanted 2|single draw"),
        (("evaluations", "lsh8", "weight"), 0, "above 0"),
        (("evaluations", "lsh8", "draws"), 0, "at least 1"),
        (("curve",), {"loss": [1.0]}, "named 'step'"),
        (("curve", "step"), [1], "equal length"),
        (("curve", "step"), [2, 2], "rising order"),
        (("curve",), {"step": list(range(301))}, "at most 300"),
    ],
)
def test_each_broken_field_is_named(path, value, message, tmp_path):
    with pytest.raises(schema.RecordError, match=message):
        schema.Record.from_dict(changed(*path, value=value))


def test_not_even_an_object():
    with pytest.raises(schema.RecordError, match="JSON object"):
        schema.Record.from_dict([1])


def test_a_refused_record_leaves_nothing_behind(tmp_path):
    good = schema.Record.from_dict(FULL)
    bad = schema.dataclasses.replace(good, wall_seconds=float("nan"))
    with pytest.raises(schema.RecordError, match="wall_seconds"):
        schema.write(bad, tmp_path / "bad.json")
    assert not list(tmp_path.rglob("*"))


def test_a_crash_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(schema.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        schema.write(FULL, tmp_path / "new.json")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_broken_and_foreign_files_are_named_and_skipped(tmp_path):
    good = store(FULL, tmp_path)
    folder = good.parent
    (folder / "half.json").write_text(good.read_text()[:300])
    (folder / "foreign.json").write_text('{"accuracy": 1}')
    (folder / "nan.json").write_text(good.read_text().replace("12.5", "NaN"))
    (folder / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "digits.json").write_text("1" * 10_000)
    (folder / "empty.json").write_text("")
    (folder / "folder.json").mkdir()
    (folder / ".record-x.tmp").write_text("left by a killed run")
    elsewhere = tmp_path / "reformer/table2/lsh1"
    elsewhere.mkdir()
    (elsewhere / good.name).write_bytes(good.read_bytes())
    (folder / "gone.json").symlink_to(tmp_path / "nowhere")
    records, problems = schema.read_all(tmp_path)
    assert [record.seed for record in records] == [3]
    names = {problem.path.name for problem in problems}
    assert names == {"half.json", "foreign.json", "nan.json", "bytes.json", "deep.json", "digits.json", "empty.json",
                     "folder.json", "gone.json", good.name}  # fmt: skip
    assert all(problem.text for problem in problems)
    assert any("lsh1" in str(problem) and "as its folder says" in str(problem) for problem in problems)


def test_records_come_oldest_first_and_a_missing_folder_is_empty(tmp_path):
    for hour in (9, 8, 7):
        plain = {**FULL, "started": f"2026-01-31T0{hour}:00:00+00:00", "finished": f"2026-01-31T0{hour}:30:00+00:00"}
        store(plain, tmp_path)
    assert [record.finish_time.hour for record in schema.read_all(tmp_path)[0]] == [7, 8, 9]
    assert schema.read_all(tmp_path / "none") == ([], [])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_an_os_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError):
        schema.write(FULL, tmp_path / "new.json")
