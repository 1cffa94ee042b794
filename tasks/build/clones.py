"""Files of a git repository without a working tree: the newest commit of a bare clone."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tasks.build.source import Notes

# Nothing of the user's or the machine's settings, nothing over the network, no questions.
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}


class DamagedClone(Exception):
    """git cannot read it, or is not there. The message is what git said."""


def is_clone(place: Path) -> bool:
    """Whether a folder is a bare clone."""
    return (place / "HEAD").is_file() and (place / "objects").is_dir() and (place / "refs").is_dir()


def commit(place: str) -> str:
    """The commit that HEAD names."""
    return _run(place, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()


def files(place: str, notes: Notes, wanted: Callable[[str], bool], most: int) -> Iterator[tuple[str, bytes]]:
    """(path, contents) of the wanted files of HEAD, by path; links, submodules and too large files are noted."""
    chosen = []
    for line in _run(place, "ls-tree", "-r", "-l", "-z", "--full-tree", "HEAD").split(b"\0")[:-1]:
        facts, _, name = line.partition(b"\t")
        mode, kind, blob, size = facts.split()
        path = name.decode("utf-8", "replace")
        if kind != b"blob" or mode == b"120000":
            notes["links", "in clones"] += 1
        elif wanted(path):
            if not size.isdigit():
                raise DamagedClone(f"{path} cannot be read")
            if int(size) > most:
                notes["files", f"over {most >> 20} MiB"] += 1
            else:
                chosen.append((path, blob))
    if chosen:
        yield from _contents(place, chosen)


def _contents(place: str, chosen: list[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    command = _command(place, "cat-file", "--batch")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    ) as git:
        assert git.stdin and git.stdout
        try:
            for path, blob in chosen:
                git.stdin.write(blob + b"\n")
                git.stdin.flush()
                head = git.stdout.readline().split()
                if len(head) != 3:
                    raise DamagedClone(f"{path} cannot be read")
                data = git.stdout.read(int(head[2]))
                git.stdout.read(1)
                yield path, data
        except BrokenPipeError:
            raise DamagedClone("git stopped") from None
        finally:
            git.kill()


def _run(place: str, *words: str) -> bytes:
    try:
        done = subprocess.run(_command(place, *words), capture_output=True, env=_environment(), check=False)
    except FileNotFoundError:
        raise DamagedClone("git is not installed") from None
    if done.returncode:
        raise DamagedClone(
            "git says: " + done.stderr.decode(errors="replace").strip().splitlines()[-1]
            if done.stderr.strip()
            else "git failed"
        )
    return done.stdout


def _command(place: str, *words: str) -> list[str]:
    return ["git", "-c", "safe.directory=*", f"--git-dir={place}", *words]


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), **ENVIRONMENT}
