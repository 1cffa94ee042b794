"""Isabelle theories in the order of their imports, so that a lemma stands before the proofs that use it."""

import re
from collections.abc import Iterator

# What may stand before a theory's header and contain anything, headers included: comments, which nest, cartouches,
# which nest too, and old-style quoted text.
_OPEN, _CLOSE = r"\(\*|\\<open>|‹|\{\*", r"\*\)|\\<close>|›|\*\}"
_BRACKETS = re.compile(f"({_OPEN})|({_CLOSE})")
_HEADER = re.compile(r"\btheory\b\s+\S+\s+imports\b(.*?)\b(?:keywords|abbrevs|begin)\b", re.DOTALL)


def imports_first(files: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """(path, text) of theories so reordered that each follows those of the list that it imports.

    Otherwise the order stays as it is; so it does among theories that import each other in a circle.
    """
    by_name: dict[str, int] = {}
    for number, (path, _) in enumerate(files):
        by_name.setdefault(_name(path), number)
    needs = [[by_name[name] for name in imports(text) if name in by_name] for _, text in files]
    order: list[int] = []
    seen: set[int] = set()
    for first in range(len(files)):
        # Depth first with a stack of its own: import chains may be longer than Python's.
        stack = [(first, iter(needs[first]))] if first not in seen else []
        seen.add(first)
        while stack:
            number, rest = stack[-1]
            following = next((one for one in rest if one not in seen), None)
            if following is None:
                order.append(number)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(needs[following])))
    return [files[number] for number in order]


def imports(text: str) -> list[str]:
    """Names of the theories that a theory's header imports, without folder and session."""
    found = _HEADER.search(" ".join(_outside(text[:65536])))
    words = re.findall(r'"([^"]+)"|(\S+)', found[1]) if found else []
    return [_name(quoted or plain) for quoted, plain in words]


def _name(path: str) -> str:
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
