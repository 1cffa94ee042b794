"""Isabelle theories in the order of their imports, so that a lemma stands before the proofs that use it."""

import posixpath
import re
from collections.abc import Iterator, Mapping

# What may stand before a theory's header and contain anything, headers included: comments, which nest, cartouches,
# which nest too, and old-style quoted text.
_OPEN, _CLOSE = r"\(\*|\\<open>|‹|\{\*", r"\*\)|\\<close>|›|\*\}"
_BRACKETS = re.compile(f"({_OPEN})|({_CLOSE})")
_HEADER = re.compile(r"\btheory\b\s+\S+\s+imports\b(.*?)\b(?:keywords|abbrevs|begin)\b", re.DOTALL)

File = tuple[str, str]  # path inside its document, text


def imports_first(files: list[File]) -> list[File]:
    """(path, text) of theories so reordered that each follows those of the list that it imports.

    Otherwise the order stays as it is; so it does among theories that import each other in a circle.
    """
    texts = dict(files)
    order, _ = arranged({path: imports(text) for path, text in texts.items()})
    return [(path, texts[path]) for path in order]


def arranged(
    wanted: Mapping[str, list[str]], sessions: Mapping[str, str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """(paths of theories, imported ones first; circles of imports, as the paths along them).

    wanted    path -> what the theory imports, as it says
    sessions  path -> the session that the theory belongs to, as far as that is known
    """
    paths = list(wanted)
    names = Names(paths, sessions or {})
    needs = [[names.find(one, path) for one in held] for path, held in wanted.items()]
    order: list[int] = []
    circles: list[list[str]] = []
    begun: set[int] = set()
    done: set[int] = set()
    for first in range(len(paths)):
        # Depth first with a stack of its own: import chains may be longer than Python's.
        stack = [(first, iter(needs[first]))] if first not in begun else []
        while stack:
            number, rest = stack[-1]
            begun.add(number)
            following = next((one for one in rest if one is not None), None)
            if following is None:
                order.append(number)
                done.add(number)
                stack.pop()
            elif following not in begun:
                stack.append((following, iter(needs[following])))
            elif following not in done:
                chain = [one for one, _ in stack]
                circles.append([paths[one] for one in chain[chain.index(following) :]])
    return [paths[number] for number in order], circles


class Names:
    """Which file of a document an import means."""

    def __init__(self, paths: list[str], sessions: Mapping[str, str]):
        self.sessions, self.known = sessions, set(sessions.values())
        self.by_path = {path: number for number, path in enumerate(paths)}
        self.by_name: dict[str, list[str]] = {}
        for path in paths:
            self.by_name.setdefault(base_name(path), []).append(path)

    def find(self, name: str, importer: str) -> int | None:
        """The number of the file that `importer`, a path, calls `name`; None for one that is elsewhere.

        Names are those of a file, relative to the importer's; of a theory of the same session; or with a session's name
        before a dot. Where no sessions are known, and where a path leads nowhere, the theory's own name decides.
        """
        if name.startswith(("~", "$")):  # of the distribution or the archive, whatever it is called here
            return None
        near = self.by_path.get(posixpath.normpath(posixpath.join(posixpath.dirname(importer), f"{name}.thy")))
        if near is not None:
            return near
        session = name.rpartition(".")[0] if "/" not in name else ""
        candidates = self.by_name.get(base_name(name), [])
        if self.sessions:
            if session and session not in self.known:
                return None
            own = session or self.sessions.get(importer, "")
            candidates = sorted(
                candidates, key=lambda path: self.sessions.get(path) != own
            )  # those of the session first
        return self.by_path[candidates[0]] if candidates else None


def imports(text: str) -> list[str]:
    """Names of the theories that a theory's header imports, as they stand there."""
    read, searched = "", 0
    for piece in (*_outside(text[:65536]), ""):
        read += f" {piece}"
        # The header is seldom far from the beginning. Where it is, looking each time would take minutes.
        if piece and ("begin" not in piece or len(read) < 2 * searched):
            continue
        searched = len(read)
        if found := _HEADER.search(read):
            words = re.findall(r'"([^"]+)"|(\S+)', found[1])
            return [(quoted or plain).removesuffix(".thy") for quoted, plain in words]
    return []


def base_name(path: str) -> str:
    """'../Other/Some_Theory', 'Session.Some_Theory' and 'Some_Theory.thy' are all called Some_Theory."""
    return path.removesuffix(".thy").rsplit("/", 1)[-1].rsplit(".", 1)[-1]


def _outside(text: str) -> Iterator[str]:
    """The pieces of a text that stand in no bracket."""
    depth, begin = 0, 0
    for bracket in _BRACKETS.finditer(text):
        if depth == 0:
            yield text[begin : bracket.start()]
        depth = depth + 1 if bracket[1] else max(depth - 1, 0)
        begin = bracket.end()
    if depth == 0:
        yield text[begin:]
