"""``repro doctor``: looks at everything a run depends on. Each finding is one line, with its remedy if it has one."""

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from launch.composition import ROOT

OK, WARN, FAIL = "ok", "warn", "FAIL"
GIB = 2**30
PYTHONS = ((3, 11), (3, 13))
# Installed beside the release they are cut from, they overwrite its files.
NIGHTLIES = {"seqio-nightly": "seqio", "tfds-nightly": "tensorflow-datasets"}
NAMED = 6  # how many packages a line names before it only counts them


def doctor(print, folder=ROOT):
    """Prints the findings, one line each, through ``print``.

    Args:
      print: called with one string for each finding.
      folder: the checkout whose pins, commit and disk are looked at.

    Returns:
      0 if a run can be started, 1 if some finding is a failure.
    """
    worst = 0
    for check in (python, packages, nightlies, devices, memory, disk, commit):
        try:
            findings = check(folder)
        except Exception as error:  # a check that breaks is itself a finding, and must not hide the others
            findings = [(FAIL, f"{type(error).__name__}: {error}", "the check itself broke; please report it")]
        for level, text, remedy in findings:
            print(f"{level:5} {check.__name__:10} {text}{f'; {remedy}' if remedy else ''}")
            worst |= level == FAIL
    return int(worst)


def pins(path):
    """The exact versions of a pin file that apply to this interpreter: {distribution name: version}."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (line.split("#")[0].strip() for line in Path(path).read_text().splitlines())
    wanted = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {
        canonicalize_name(one.name): str(one.specifier).removeprefix("==")
        for one in wanted
        if one.marker is None or one.marker.evaluate()
    }


def installed(name):
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def python(folder):
    """The interpreter: its version, and whether it is the checkout's own environment."""
    version = "{}.{}.{}".format(*sys.version_info[:3])
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return [(FAIL, f"{version} at {sys.executable}", "the pins are for 3.11, 3.12 and 3.13: make venv PYTHON=...")]
    if Path(sys.prefix).resolve() != (folder / ".venv").resolve():
        return [(OK, f"{version} at {sys.executable} (not this checkout's .venv)", "")]
    return [(OK, version, "")]


def packages(folder):
    """Installed versions against the pins. Without TensorFlow and seqio the box is called bare, which is allowed."""
    everything, bare = pins(folder / "requirements/cpu.txt"), pins(folder / "requirements/bare.txt")
    found = {name: installed(name) for name in everything}
    lacking = [name for name, version in found.items() if version is None]
    essential = [name for name in lacking if name in bare]
    other = [f"{n} {v} (pinned {everything[n]})" for n, v in found.items() if v not in (None, everything[n])]
    again = "install the pins: make venv, or pip install --no-deps -r requirements/"
    findings = []
    if essential:
        findings.append((FAIL, f"not installed: {_some(essential)}", again + "bare.txt"))
    elif "seqio" in lacking:
        text = f"bare box: {len(lacking)} packages of cpu.txt are not installed, seqio among them"
        findings.append((WARN, text, "tasks on corpora need them: " + again + "cpu.txt"))
    elif lacking:
        findings.append((WARN, f"not installed: {_some(lacking)}", again + "cpu.txt"))
    if other:
        findings.append((WARN, f"other versions than pinned: {_some(other)}", again + "cpu.txt"))
    return findings or [(OK, f"all {len(everything)} as pinned in requirements/cpu.txt", "")]


def nightlies(folder):
    """Whether seqio and tensorflow-datasets are whole, or were overwritten by their nightly twins."""
    remedy = "rebuild the environment with make (rm -r .venv first), or install the pins with --no-deps"
    present = [name for name in NIGHTLIES if installed(name)]
    if present:
        return [(FAIL, f"{_some(present)} installed, which overwrites released packages", remedy)]
    findings = []
    for release in NIGHTLIES.values():
        if installed(release):
            damaged = [str(f) for f in metadata.files(release) or () if f.size is not None and not _as_recorded(f)]
            if damaged:
                findings.append((FAIL, f"{release} has {len(damaged)} foreign or lost files ({damaged[0]})", remedy))
    return findings or [(OK, "no nightly twin of seqio or tensorflow-datasets, their files are whole", "")]


def devices(folder):
    """What JAX computes on. A graphics card that JAX does not use is worth a warning: runs would crawl."""
    import jax

    try:
        found = jax.devices()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        return [
            (FAIL, f"JAX starts no device: {reason}", "see requirements/gpu.txt and tpu.txt, or set JAX_PLATFORMS=cpu")
        ]
    kinds = ", ".join(sorted({device.device_kind for device in found}))
    text = f"{len(found)} x {kinds} ({found[0].platform}), {os.cpu_count()} processor cores"
    idle = found[0].platform == "cpu" and shutil.which("nvidia-smi") and "JAX_PLATFORMS" not in os.environ
    if idle:
        return [(WARN, f"{text}, but an NVIDIA driver is here", "pip install --no-deps -r requirements/gpu.txt")]
    return [(OK, text, "")]


def memory(folder):
    """Main memory: the reduced scales stay under 3 GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    if total < 4:
        return [(WARN, f"{total:.1f} GiB", "runs at scale cpu want 3 GiB; close other programs")]
    return [(OK, f"{total:.1f} GiB", "")]


def disk(folder):
    """Space for runs and checkpoints: where REPRO_RUNS points, or in the checkout."""
    place = Path(os.environ.get("REPRO_RUNS", folder))
    while not place.exists():  # the folder of runs is made by the first run
        place = place.absolute().parent
    if not os.access(place, os.W_OK):
        return [(FAIL, f"{place} is not writable", "set REPRO_RUNS, or --workdir, to a folder that is")]
    free = shutil.disk_usage(place).free / GIB
    if free < 5:
        remedy = "delete old folders in runs/, or set REPRO_RUNS, or --workdir, to a larger disk"
        return [(FAIL if free < 0.5 else WARN, f"{free:.1f} GiB free at {place}", remedy)]
    return [(OK, f"{free:.1f} GiB free at {place}", "")]


def commit(folder):
    """What a record would say about the code: its commit, and whether tracked files differ from it."""

    def git(*words):
        return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        name = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return [(WARN, "no git checkout", "records would not name their commit; clone the repository with git")]
    if changed:
        return [(WARN, f"{name}, with {len(changed.splitlines())} changed files", "commit before a run that counts")]
    return [(OK, name, "")]


def _as_recorded(file):
    path = file.locate()
    return path.is_file() and path.stat().st_size == file.size


def _some(names):
    """The first few names, and the number of the others."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
