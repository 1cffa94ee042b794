"""`results/compiled.md`: what every row needs on the papers' TPUs, made from `results/compiled` alone."""

from pathlib import Path

from results import compilations
from results.compilations import COMPILED, GIB, PAGE
from results.texts import duration

HEAD = """# Compiled, not run

Made from `results/compiled` by `repro check --tpu`; edits are overwritten, and a test fails when this file is stale.
Nobody ran these: each row's training step, at the paper's full size, was compiled ahead of time for a topology of TPUs
that need not be there (`v3:2x2` are the 8 cores of the first paper, `v3:4x4` the 32 of the second; a core has 16 GiB).
All figures are of one device and one step, and the compiler's: memory is its plan; operations (products only) and bytes
are read from its program with every loop counted as often as it runs; the time is the sum of its estimated cycles and,
behind the +, what it gives no estimate for (gathers, sorts, partial reductions) at the speed of the memory; waiting for
other devices is in neither. A row is green if a step leaves a tenth of the memory free.
"""
COLUMNS = (
    ("Row", lambda one: f"`{one.stem}`" + (f" (as `{one.same_as}`)" if one.same_as else "")),
    ("Devices", lambda one: f"{one.topology}{_mesh(one)}"),
    ("Parameters", lambda one: f"{one.parameters / 1e6:,.1f}M"),
    ("Memory, GiB", lambda one: f"{'**' if not one.green else ''}{_gib(one.hbm_bytes)}{'**' if not one.green else ''}"),
    ("parameters, optimiser", lambda one: _gib(one.state_bytes["params"] + one.state_bytes["optimizer"])),
    ("caches, memories", lambda one: _gib(one.state_bytes["model"])),
    ("temporary", lambda one: _gib(one.memory["temporaries"]) if one.memory else "-"),
    ("TFLOP", lambda one: f"{one.flops / 1e12:.2f}" if one.fits else "-"),
    ("GB moved", lambda one: f"{one.bytes / 1e9:,.0f}" if one.fits else "-"),
    ("Seconds, estimated", lambda one: f"{one.seconds:.3f} + {one.silent_seconds:.3f}" if one.seconds else "-"),
    ("Partial reduces", lambda one: str(one.partial_reduces) if one.fits else "-"),
    ("Collectives", lambda one: _collectives(one)),
    ("Compiled in", lambda one: f"{_compiling(one)}, {_gib(one.compiler_bytes)} GiB"),
)
STEP_TIMES = {"none": "memorizing/step_time/none", "8K": "memorizing/step_time/mem8192",
              "65K": "memorizing/step_time/mem65k"}  # fmt: skip
PAPER_RATIOS = {"8K": 0.25 / 0.2, "65K": 0.6 / 0.2}  # seconds a step, section 4.3


def generate(folder=COMPILED):
    """The page as text."""
    found, problems = compilations.read_all(folder)
    lines = [HEAD]
    for paper in dict.fromkeys(one.stem.partition("/")[0] for one in found):
        mine = [one for one in found if one.stem.startswith(paper + "/")]
        green = sum(one.green for one in mine)
        lines += [f"## {paper}", "", f"{green} of {len(mine)} green.", ""]
        lines += [f"| {' | '.join(title for title, _ in COLUMNS)} |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
        lines += [f"| {' | '.join(show(one) for _, show in COLUMNS)} |" for one in mine]
        lines += [""]
        over = [one for one in mine if not one.green]
        lines += [f"- `{one.stem}` on {one.topology}: {_over(one)}" for one in over] + ([""] if over else [])
    lines += list(_ratios(found))
    lines += list(_provenance(found))
    lines += [f"- {problem.path.name}: {problem.text}" for problem in problems]
    return "\n".join(lines).rstrip() + "\n"


def write(folder=COMPILED, page=PAGE):
    """Renews the page beside the records; returns its path."""
    Path(page).write_text(generate(folder))
    return Path(page)


def _ratios(found):
    """Estimated step times with memories of two sizes against none, beside those that the paper measured."""
    times = {name: one.seconds + one.silent_seconds for name, stem in STEP_TIMES.items() for one in found
             if one.stem == stem and one.topology == "v3:4x4" and one.seconds}  # fmt: skip
    if len(times) < len(STEP_TIMES):
        return
    yield "## Step time against the size of the memory"
    yield ""
    yield "| Memory | Paper, measured | Here, the compiler's estimate |"
    yield "|---|---:|---:|"
    for name, ratio in PAPER_RATIOS.items():
        yield f"| {name} : none | {ratio:.2f} | {times[name] / times['none']:.2f} |"
    yield ""


def _provenance(found):
    if found:
        kinds = sorted({f"{name} {version}" for one in found for name, version in one.versions.items()})
        commits = sorted({one.commit[:8] + (" changed" if one.dirty else "") for one in found})
        yield f"Compilers: {', '.join(kinds)}. Commits: {', '.join(commits)}."


def _mesh(one):
    """' (8 data x 4 fully)' where not all devices are data parallel."""
    if set(one.mesh) <= {"data"}:
        return "" if one.mesh.get("data", 1) == one.devices else f" ({one.devices} used)"
    return f" ({' x '.join(f'{size} {name}' for name, size in one.mesh.items())})"


def _compiling(one):
    if one.processor_seconds:
        return f"{duration(one.processor_seconds)} of a processor"
    return f"{duration(one.compile_seconds)} on a busy machine"


def _gib(count):
    return f"{count / GIB:.2f}"


def _collectives(one):
    return "<br>".join(
        f"{sum_.count} {kind}, {sum_.bytes / 1e6:,.1f} MB" for kind, sum_ in sorted(one.collectives.items())
    ) or ("none" if one.fits else "-")


def _over(one):
    limit = one.limit or 0
    if not one.over:
        return f"fits, with {one.hbm_bytes / limit:.0%} of the memory in use"
    return f"does not fit, by {_gib(one.hbm_bytes - limit)} GiB: {one.problem[:160]}"
