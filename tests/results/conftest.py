"""Synthetic records: written into temporary folders only, never among the real ones."""

import statistics

import pytest

from results import schema


def plain_record(
    stem="reformer/table2/lsh4", scale="cpu", seed=0, values=None, finished="2026-01-31T10:00:00+00:00", **more
):
    """A record as a dict. `values`: evaluation -> value, or list with a value per rotation draw (accuracy in %)."""
    values = values or {
        "full": 90.0,
        "lsh8": [99.0, 100.0],
        "lsh4": [98.0, 99.0],
        "lsh2": [95.0, 96.0],
        "lsh1": [80.0, 84.0],
    }
    evaluations = {}
    for name, value in values.items():
        draws = [float(each) for each in (value if isinstance(value, list) else [value])]
        metric = {"value": statistics.fmean(draws), "unit": "%", "better": "higher", "per_draw": draws}
        evaluations[name] = {
            "split": "test",
            "draws": len(draws),
            "examples": 8,
            "weight": 1016.0,
            "metrics": {"accuracy": {**metric, "spread": statistics.pstdev(draws)}},
        }
    record = {
        "schema": 1,
        "stem": stem,
        "scale": scale,
        "seed": seed,
        "steps": 400,
        "overrides": [],
        "commit": "0123abc",
        "dirty": False,
        "config": "STEPS = 400\n",
        "data": {"task": "duplication_256", "fingerprint": "f00"},
        "devices": {"platform": "cpu", "kind": "cpu", "count": 1},
        "started": "2026-01-31T09:00:00+00:00",
        "finished": finished,
        "wall_seconds": 62.0,
        "peak_memory_bytes": 812_000_000,
        "parameters": 180_000,
        "tokens_per_second": 24_000.0,
        "evaluations": evaluations,
        "curve": {"step": [1, 200, 400], "accuracy": [0.8, 50.0, 99.0], "nats_per_token": [4.85, 2.0, 0.1]},
        "versions": {"python": "3.11.7"},
    }
    return {**record, **more}


def store(folder, **fields):
    """Writes such a record among those in `folder`; returns its path."""
    record = schema.Record.from_dict(plain_record(**fields))
    return schema.write(record, schema.path_of(record, folder))


@pytest.fixture(scope="session")
def make():
    """make(stem=..., scale=..., seed=..., values=..., finished=..., **fields) -> Record."""
    return lambda **fields: schema.Record.from_dict(plain_record(**fields))


@pytest.fixture
def put(tmp_path):
    """put(**fields) writes such a record under tmp_path/'records' and returns its path."""
    return lambda **fields: store(tmp_path / "records", **fields)


@pytest.fixture(scope="session")
def fill():
    """fill(folder) writes records of all four rows of Table 2 at scale cpu, 3 seeds each, and returns the folder."""
    levels = {
        "full": (100, 99, 97, 88, 60),
        "lsh4": (99.9, 99.9, 99.8, 98, 90),
        "lsh2": (99.8, 99.8, 99.5, 98, 92),
        "lsh1": (99.7, 99.7, 99.4, 98, 94),
    }

    def write(folder):
        for row, values in levels.items():
            for seed in range(3):
                full, *hashed = (value - 0.01 * seed for value in values)
                draws = {f"lsh{k}": [value - 0.02, value + 0.02] for k, value in zip((8, 4, 2, 1), hashed, strict=True)}
                store(folder, stem=f"reformer/table2/{row}", seed=seed, values={"full": full, **draws})
        return folder

    return write


@pytest.fixture
def whole_table(fill, tmp_path):
    """The folder of a filled Table 2."""
    return fill(tmp_path / "records")


@pytest.fixture(scope="session")
def put_into():
    """put_into(folder, **fields) writes a record among those in `folder`."""
    return store
