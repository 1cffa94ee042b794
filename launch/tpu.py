"""`repro check --tpu`: every row's training step, compiled at full size for the papers' TPUs on any machine.

Each row is compiled in a process of its own (`launch.compiling`), one after the other, and kept as a record that says
"compiled, not run" (`results.compilations`). Rows that have one with the same config and the same compiler are passed
over, so the command can be stopped and repeated.
"""

import datetime
import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib import metadata

from launch import composition as files
from launch import hugepages
from launch.errors import ConfigError, RunError
from results import compilations, compiled_page
from results.validation import RecordError

# What the papers trained on, as JAX counts devices: 8 cores, 32 cores. A row's header may name another one.
TOPOLOGIES = {"reformer": "v3:2x2", "memorizing": "v3:4x4"}
COMPILER = "libtpu"
PROCESSOR = "cpu:"
PATIENCE = 3600  # seconds for one row


def check(stems, topology=None, folder=compilations.COMPILED, again=False, overrides=(), say=print):
    """Compiles rows, writes their records, and renews the page that shows them.

    Args:
      stems: rows, or experiments of them: the columns of a table have one program. topology: such as 'v3:4x4', or
        'cpu:8' for simulated devices of this machine; None for each row's own. again: also rows that are recorded.
        overrides: gin assignments; what they give is shown and not kept. say: gets one line per row.

    Returns:
      0, or 1 if some row could not be compiled or does not fit.

    Raises:
      ConfigError: the compiler is not installed.
    """
    if not (topology or "").startswith(PROCESSOR):
        require_compiler()
    elif not re.fullmatch(r"[1-9]\d*", topology.removeprefix(PROCESSOR)):
        raise ConfigError(f"--topology is {topology!r}; wants a number of simulated devices, such as {PROCESSOR}8")
    failed = 0
    for row, stem in programs(stems).items():
        chosen = topology or topology_of(row)
        made = files.compose(stem, overrides=tuple(overrides))
        path = compilations.path_of(row, chosen, folder)
        if not again and not overrides and (kept := usable(path, made.portable_text)):
            say(line(kept) + "  (recorded)")
            failed += not kept.green
            continue
        try:
            facts = run({"stem": stem, "scale": made.scale, "overrides": list(overrides), "topology": chosen,
                         "known": [] if again or overrides else list(known(folder, chosen))})  # fmt: skip
        except RunError as error:
            failed += 1
            say(f"FAIL  {row:44} {chosen:8} {error}")
            continue
        record = {**twin(facts, folder, chosen), **about(made, row, chosen)}
        one = compilations.made(record)
        if not overrides:
            compilations.write(record, folder)
        failed += not one.green
        say(line(one))
    if folder == compilations.COMPILED:
        compiled_page.write()
    return int(failed > 0)


def programs(stems):
    """{row: the experiment to compile for it}: the first column of each row, since the others have the same program."""
    first = {}
    for stem in stems:
        first.setdefault(stem.partition("+")[0], stem)
    return first


def topology_of(row):
    """The topology that a row's header names, else its paper's."""
    named = files.header(files.path_of(row)).fields.get("Topology")
    paper = row.partition("/")[0]
    if not named and paper not in TOPOLOGIES:
        raise ConfigError(f"{row} names no topology in its header ('# Topology: v3:4x4'); give one with --topology")
    return named.split()[0] if named else TOPOLOGIES[paper]


def require_compiler():
    """Raises ConfigError where libtpu is missing."""
    if importlib.util.find_spec(COMPILER) is None:
        raise ConfigError(
            "compiling for TPUs needs libtpu, which is not installed here; no TPU is needed: "
            "pip install --no-deps -r requirements/tpu.txt (or with --target DIR, and PYTHONPATH=DIR)"
        )


def usable(path, config):
    """The record at `path` if it is of this config and this compiler, else None."""
    try:
        one = compilations.read(path)
    except (FileNotFoundError, RecordError):
        return None
    here = {name: installed(name) for name in ("jax", COMPILER)}
    same = all(one.versions.get(name, here[name]) == here[name] for name in here)
    return one if one.config == config and same else None


def installed(name):
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def known(folder, topology):
    """{digest of a program: the record of its compilation} for a topology and this compiler."""
    return {
        one.program: one
        for one in compilations.read_all(folder)[0]
        if one.topology == topology and not one.same_as and one.versions.get(COMPILER) == installed(COMPILER)
    }


def twin(facts, folder, topology):
    """The facts, with those of the row that has the same program if the compilation was skipped."""
    if "fits" in facts:
        return facts
    other = known(folder, topology)[facts["program"]]
    return {**compilations.plain(other), **facts, "same_as": other.stem}


def about(made, row, topology):
    """What a record says besides the compiler's facts."""
    from launch.run import _commit

    commit, dirty = _commit()
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return {"stem": row, "topology": topology, "config": made.portable_text, "commit": commit, "dirty": dirty,
            "finished": now.isoformat()}  # fmt: skip


def run(setting):
    """The facts that a child process found. Raises RunError with its last line if it fails."""
    path = os.pathsep.join(filter(None, [str(files.ROOT), os.environ.get("PYTHONPATH")]))
    environment = {
        hugepages.TUNABLES: hugepages.WANTED,
        **os.environ,
        "PYTHONPATH": path,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # or the time of compiling would be that of reading
        "JAX_TRACEBACK_FILTERING": "off",
        "TPU_SKIP_MDS_QUERY": "1",  # there is no TPU to ask about
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # nor one that two compilations could both want
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    if setting["topology"].startswith(PROCESSOR):
        count = setting["topology"].removeprefix(PROCESSOR)
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    command = [sys.executable, "-m", "launch.compiling", json.dumps(setting)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise RunError(f"no answer within {PATIENCE} s") from None
    if done.returncode:
        said = [text for text in done.stderr.strip().splitlines() if text.strip()] or ["it said nothing"]
        raise RunError(f"exit status {done.returncode}: {said[-1][:300]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def line(one):
    """A record in a line."""
    share = f" of {one.limit / compilations.GIB:.0f}" if one.limit else ""
    state = "ok   " if one.green else "OVER " if one.over else "full "
    seconds = f"{one.seconds:7.3f} s" if one.seconds is not None else "        -"
    return (
        f"{state} {one.stem:44} {one.topology:8} {one.hbm_bytes / compilations.GIB:6.2f}{share} GiB a device  "
        f"{one.flops / 1e12:7.3f} TFLOP  {seconds} estimated  compiled in {one.compile_seconds:.0f} s"
    )
