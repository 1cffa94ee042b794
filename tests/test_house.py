"""Rules of the house: who imports whom, what is pinned, what no tracked file may hold."""

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
# Package -> the packages of ours that it may import. Each paper is readable alone.
MAY_IMPORT = {"reformer": (), "memorizing": (), "tasks": (), "results": (), "launch": ("tasks", "results")}
# Only gin's door and the profiler know the models by name.
ALSO = {
    "launch/config.py": ("reformer", "memorizing"),
    "launch/workloads.py": ("reformer",),
    "launch/memory_workloads.py": ("memorizing",),
}
# Optional modules of bench.txt, which need not be installed here -> their packages.
EXTRAS = {"faiss": "faiss-cpu", "scann": "scann"}
HEAVY = ("tensorflow", "tensorflow_datasets", "tensorflow_text", "seqio", "t5", "clu", "apache_beam")


def imports(path):
    """(module, whether it is imported as soon as the file is) of every import in a file, lazy ones and
    ``importlib.import_module("...")`` included. Relative imports stay in their package and are left out."""
    found = []

    def walk(node, at_once):
        for child in ast.iter_child_nodes(node):
            inner = at_once and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.Import):
                found.extend((alias.name, at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and not child.level:
                found.append((child.module, at_once))
            elif isinstance(child, ast.Call) and ast.unparse(child.func) in ("importlib.import_module", "__import__"):
                found.extend((word.value, at_once) for word in child.args[:1] if isinstance(word, ast.Constant))
            walk(child, inner)

    walk(ast.parse(path.read_text()), True)
    return found


def sources(package):
    return sorted((ROOT / package).rglob("*.py"))


def tracked():
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout, so nothing says which files are tracked")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def requirements(name):
    """The requirements of a pin file, in its order."""
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements" / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


def versions(name):
    return {canonicalize_name(one.name): str(one.specifier)[2:] for one in requirements(name)}


def python(code):
    """Runs code in a fresh interpreter in the root folder; fails with its error output if it does."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def blocked(*modules):
    """Code that makes importing ``modules`` fail, as on a machine that has not got them."""
    return f"import sys; sys.modules.update(dict.fromkeys({modules!r}))\n"


def test_importing_is_seen_wherever_it_stands(tmp_path):
    lines = ("import a.b", "class C:", "  import c", "def f():", "  from d import e", "  importlib.import_module('g')")
    (tmp_path / "code.py").write_text("\n".join((*lines, "from . import h", "")))
    assert imports(tmp_path / "code.py") == [("a.b", True), ("c", True), ("d", False), ("g", False)]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_whom_they_may(package):
    assert sources(package)
    for path in sources(package):
        name = path.relative_to(ROOT).as_posix()
        allowed = {package, *MAY_IMPORT[package], *ALSO.get(name, ())}
        ours = {module.split(".")[0] for module, _ in imports(path)} & set(MAY_IMPORT)
        assert ours <= allowed, f"{name} imports {sorted(ours - allowed)}; it may import {sorted(allowed)}"


@pytest.mark.parametrize("package", ["reformer", "memorizing"])
def test_models_need_only_jax_flax_and_numpy(package):
    for path in sources(package):
        outside = {module.split(".")[0] for module, _ in imports(path)} - sys.stdlib_module_names - {package}
        assert outside <= {"jax", "flax", "numpy"}, path


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_heavy_packages_are_imported_only_when_needed(package):
    late = {*HEAVY, *(("matplotlib", "rich", "jax") if package == "results" else ())}
    for path in sources(package):
        early = {module.split(".")[0] for module, at_once in imports(path) if at_once} & late
        assert not early, f"{path.relative_to(ROOT)} imports {sorted(early)} at once; do it inside the function"


def test_everything_imports_without_tensorflow_and_seqio():
    names = [
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for package in MAY_IMPORT
        for path in sources(package)
        if path.name != "__main__.py"
    ]
    python(blocked(*HEAVY) + f"import importlib\nfor name in {names!r}: importlib.import_module(name)")


@pytest.mark.parametrize("words", [["list"], ["show", "reformer/table2/lsh4"], ["compare", "reformer/table2"]])
def test_looking_things_up_needs_neither_jax_nor_tensorflow(words):
    out = python(blocked(*HEAVY, "jax", "jaxlib", "flax") + f"from launch.cli import main; sys.exit(main({words!r}))")
    assert "lsh4" in out


def test_every_package_that_we_import_is_pinned():
    pinned = versions("cpu.txt") | versions("beam.txt") | versions("bench.txt")
    providers = metadata.packages_distributions() | {module: [package] for module, package in EXTRAS.items()}
    for package in MAY_IMPORT:
        for path in sources(package):
            for module in {module.split(".")[0] for module, _ in imports(path)} - sys.stdlib_module_names:
                if module not in MAY_IMPORT:
                    by = {canonicalize_name(name) for name in providers.get(module, ())}
                    assert by & set(pinned), f"{path.relative_to(ROOT)} imports {module}, which neither file pins"


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.name)
def test_pins_are_exact_and_give_no_address(path):
    for one in requirements(path.name):
        assert re.fullmatch(r"==[0-9][\w.]*", str(one.specifier)), f"{path.name}: {one} is not an exact version"
        assert one.url is None, f"{path.name}: {one} gives an address"
    names = [canonicalize_name(one.name) for one in requirements(path.name)]
    assert len(names) == len(set(names))


def test_pin_files_agree():
    cpu, bare = versions("cpu.txt"), versions("bare.txt")
    assert bare.items() <= cpu.items()
    for extra in ("gpu.txt", "tpu.txt", "beam.txt", "bench.txt"):
        assert not set(versions(extra)) & set(cpu), f"{extra} repeats packages of cpu.txt"
    # What jax itself asks for beside this version of it: its own statement, not ours.
    everything = cpu | versions("gpu.txt") | versions("tpu.txt")
    asked = [Requirement(line) for line in metadata.requires("jax")]
    asked = [one for one in asked if any(one.marker and one.marker.evaluate({"extra": e}) for e in ("tpu", "cuda13"))]
    assert {"libtpu", "jax-cuda13-plugin"} <= {one.name for one in asked}
    for one in asked:
        assert one.specifier.contains(everything[canonicalize_name(one.name)]), one
    assert everything["jax-cuda13-pjrt"] == everything["jax-cuda13-plugin"] == everything["jaxlib"] == everything["jax"]


def test_installed_versions_are_the_pinned_ones():
    wanted = {
        canonicalize_name(one.name): str(one.specifier)[2:]
        for one in (*requirements("cpu.txt"), *requirements("beam.txt"))
        if one.marker is None or one.marker.evaluate()
    }
    present = {canonicalize_name(one.metadata["Name"]): one.version for one in metadata.distributions()}
    assert {name: present.get(name) for name in wanted} == wanted
    assert not {"seqio-nightly", "tfds-nightly"} & set(present), "a nightly overwrites files of its released twin"


def test_tracked_files_name_no_machine_and_no_registry():
    places = re.compile(
        r"/(work|root|farm|home/\w+)/[A-Za-z.]|py[p]i\.org|python[h]osted|registry\.npm[j]s|deb\.debia[n]\.org"
    )
    for path in tracked():
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1):
            found = places.search(line)
            assert not found, f"{path.relative_to(ROOT)}:{number} names {found[0]!r}"


def test_files_stay_short_enough_to_have_one_duty():
    for path in tracked():
        if path.suffix == ".py":
            lines = len(path.read_text().splitlines())
            assert lines <= 350, f"{path.relative_to(ROOT)} has {lines} lines; split it by duty"
