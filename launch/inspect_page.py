"""The page of `repro inspect`: one HTML file with style, script and data inside, which loads nothing.

Beside the text and what its tokens retrieved: the figures of the paper's section 4.6, gains along the document, the
tokens that gained most, gates, and for Isabelle how often names led to their statements.
"""

import base64
import json
import re
from html import escape
from pathlib import Path

import numpy as np

from launch.inspection import BEGINNING, NOTHING

BARS = 300  # of the picture of gains
AROUND = 60  # characters of context on each side, in tables


def summary(document, found):
    """What is printed: lines of text."""
    counted = np.isfinite(found.nats[1])
    mean = found.nats[:, counted].mean(1, dtype=np.float64)
    gain = found.gain[counted]
    yield (
        f"  {document.split} {document.number}, {document.name}: {counted.sum():,} tokens, perplexity "
        f"{np.exp(mean[0]):.3f} with memory {found.sizes[0]:,}, {np.exp(mean[1]):.3f} with {found.sizes[1]:,}; "
        f"{np.mean(gain > 1):.2%} of tokens gain more than 1 nat, {np.mean(gain < -1):.2%} lose as much"
    )
    one = found.definitions
    if one and one.tokens:
        yield (
            f"  of {one.tokens:,} tokens of names stated before, {one.any_head / one.tokens:.1%} retrieved the "
            f"statement in some head (random entries: {one.any_chance / one.tokens:.1%}); a head alone "
            f"{np.mean(one.heads) / one.tokens:.1%} (random: {one.chance / one.tokens:.1%}); it had most attention in "
            f"{np.mean(one.strongest) / one.tokens:.1%} (random: {one.strongest_chance / one.tokens:.1%})"
        )


def generate(run, document, found, examples=30):
    """The page as text. run: `trained.Trained`; examples: rows of the tables of tokens."""
    from results.page import STYLE

    style = [Path(path).read_text(encoding="utf-8") for path in (STYLE, Path(__file__).with_name("inspect.css"))]
    script = Path(__file__).with_name("inspect.js").read_text(encoding="utf-8")
    title = f"{document.name}: what was retrieved"
    order = np.argsort(-found.gain, kind="stable")
    parts = (
        _header(run, document, found),
        _worth(found),
        _READER,
        _gains(document, found, order[:examples]),
        _names(document, found, examples) if found.definitions else "",
        _gates(found),
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{"".join(style)}</style></head>\n'
        f'<body>{"".join(parts)}\n<script type="application/json" id="data">{_data(document, found, int(order[0]))}'
        f"</script>\n<script>{script}</script></body></html>\n"
    )


_NONE = " Without a memory there are no gates either: local attention counts whole."
_READER = """<section id="read"><h2>The document, and what it retrieved</h2>
<p class="soft small">Blue tokens gained by the larger memory, orange ones lost. Point at a token to see which earlier
tokens it retrieved (underlined, and listed beside with their surroundings); click to hold it, and again or Escape to
let go; the arrow keys move on. A retrieved token is the one that had just been read where the pair was stored.</p>
<div class="bar"><button id="back">&larr;</button><button id="on">&rarr;</button><span id="where"></span>
<label>go to token <input id="token" type="number" min="0"></label>
<label>head <select id="head"><option value="all">all, mean</option></select></label></div>
<div class="reader"><div id="text"></div><div id="panel"></div></div></section>"""


def _header(run, document, found):
    lines = [escape(line.strip()) for line in summary(document, found)]
    return (
        f"<h1>{escape(document.name)}</h1>"
        f'<p class="soft">{escape(run.name)}, step {run.step}; document {document.number} of {document.split}, '
        f"segments of {document.task.length} tokens.</p>{''.join(f'<p>{line}</p>' for line in lines)}"
    )


def _worth(found):
    small, large = found.sizes
    return (
        f"<section><h2>What the memory was worth</h2><p>Nats gained by a memory of {large:,} over one of {small:,}, "
        "summed over stretches of the document; below the line, lost. As long as the smaller memory holds the whole "
        f"document there is nothing to gain.{'' if small else _NONE}</p>{_picture(found)}</section>"
    )


def _gains(document, found, tokens):
    """The tokens with the largest gains, with their contexts."""
    small, large = found.sizes
    heads = ("<th>Token</th><th>In its place</th><th>Nats, memory "
             f"{small:,}</th><th>{large:,}</th><th>Gain</th><th>Retrieved with most attention</th>")  # fmt: skip
    rows = []
    for token in map(int, tokens):
        best, head = _best(found, token)
        cells = f"<td>{token:,}</td>{_context(document, token)}" + "".join(
            f"<td>{value:.2f}</td>" for value in (*found.nats[:, token], found.gain[token])
        )
        there = f"{_context(document, best, head)}" if head else "<td>nothing</td>"
        rows.append(f'<tr data-token="{token}">{cells}{there}</tr>')
    return (
        "<section><h2>Tokens that gained most</h2><p>A click leads to the token in the document.</p>"
        f'<div class="wide"><table class="text small"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _picture(found):
    """Sums of gains over stretches, as an SVG of bars: gains above, losses below."""
    gain = found.gain
    edges = np.linspace(0, len(gain), min(BARS, len(gain)) + 1).astype(int)[:-1]
    up, down = (np.add.reduceat(np.maximum(sign * gain, 0), edges) for sign in (1, -1))
    top = max(float(up.max()), float(down.max()), 1e-9)
    bars = []
    for number, (more, less) in enumerate(zip(up / top * 60, down / top * 60, strict=True)):
        bars.append(f'<rect x="{number}" y="{60 - more:.2f}" width=".8" height="{more:.2f}" fill="#0b5fa5"/>')
        bars.append(f'<rect x="{number}" y="60" width=".8" height="{less:.2f}" fill="#b34700"/>')
    return (
        f'<svg class="gain" viewBox="0 0 {len(edges)} 120" preserveAspectRatio="none" role="img" '
        f'aria-label="gains along the document">{"".join(bars)}</svg>'
        f'<p class="soft small">Token 0 to {len(gain) - 1:,}; the tallest bar is {top:.1f} nats.</p>'
    )


def _gates(found):
    rows = []
    for m, layer in enumerate(found.layers):
        for h in range(found.share.shape[1]):
            share, age, recall = found.share[m, h], found.age[m, h], found.recall[m, h]
            bar = f'<span class="share"><i style="width:{100 * share:.1f}%"></i></span>'
            rows.append(f"<tr><td>layer {layer}, head {h + 1}</td><td>{bar} {share:.3f}</td><td>{age:,.0f}</td>"
                        f"<td>{recall:.1%}</td></tr>")  # fmt: skip
    return (
        "<section><h2>Gates</h2><p>The share of the memory in each head's output (the rest is local attention), how "
        "many tokens back what it retrieved lies on average, weighted by attention, and the share of the k best entries"
        ' that the search found.</p><table class="small"><thead><tr><th>Head</th><th>Memory</th><th>Tokens back</th>'
        f"<th>Recall</th></tr></thead><tbody>{''.join(rows)}</tbody></table></section>"
    )


def _names(document, found, examples):
    """How often a name led to its statement, per head, and the names of which most heads found it."""
    one = found.definitions
    if not one.tokens:
        return ("<section><h2>Names and their statements</h2><p>No name is used here whose statement was in memory "
                f"({one.out:,} tokens of names were out of its reach).</p></section>")  # fmt: skip
    many = np.atleast_2d(one.heads) / one.tokens, np.atleast_2d(one.strongest) / one.tokens
    rows = [f"<tr><td>any head</td><td>{one.any_head / one.tokens:.1%}</td><td>{one.any_chance / one.tokens:.1%}</td>"
            "<td></td><td></td></tr>"]  # fmt: skip
    rows += [
        f"<tr><td>layer {layer}, head {h + 1}</td><td>{many[0][m, h]:.1%}</td><td>{one.chance / one.tokens:.1%}</td>"
        f"<td>{many[1][m, h]:.1%}</td><td>{one.strongest_chance / one.tokens:.1%}</td></tr>"
        for m, layer in enumerate(found.layers)
        for h in range(many[0].shape[1])
    ]
    cases = []
    best = sorted(one.cases, key=lambda n: (-one.cases[n], -float(found.gain[slice(*one.mentions[n][1])].sum())))
    for number in best[:examples]:
        name, (begin, _), (low, _) = one.mentions[number]
        cases.append(
            f'<tr data-token="{begin}"><td>{escape(name)}</td><td>{one.cases[number]} of {many[0].size}</td>'
            f"{_context(document, begin)}{_context(document, low)}</tr>"
        )
    return (
        f"<section><h2>Names and their statements</h2><p>{one.tokens:,} tokens belong to names whose statement (what a "
        "lemma, definition, fun and the like says, the name left out) was in memory; "
        f"{one.out:,} more belong to names whose statement was not there. Is a token of the statement among those "
        "retrieved, and does the one with most attention belong to it? Beside: entries drawn at random from the memory "
        'of the same moment.</p><table class="small"><thead><tr><th>Head</th><th>Retrieved</th><th>random</th>'
        f"<th>Most attention</th><th>random</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
        '<h3>Names of which most heads retrieved the statement</h3><div class="wide"><table class="text small"><thead>'
        "<tr><th>Name</th><th>Heads</th><th>Used</th><th>Stated</th></tr></thead>"
        f"<tbody>{''.join(cases)}</tbody></table></div></section>"
    )


def _best(found, token):
    """(token retrieved, text that says by whom) with most attention of all heads, times the memory's share."""
    row = token - (found.nats.shape[1] - len(found.place))
    if row < 0 or (found.place[row] == NOTHING).all():
        return 0, ""
    weight = np.where(found.place[row] == NOTHING, -1, found.weight[row] * found.share[..., None])
    m, h, n = np.unravel_index(weight.argmax(), weight.shape)
    place = int(found.place[row][m, h, n])
    return place, f"layer {found.layers[m]}, head {h + 1}, {found.weight[row][m, h, n]:.0%}, {token - place:,} back"


def _context(document, token, note=""):
    """A table cell: a token with what stands around it."""
    if token == BEGINNING:
        return f'<td class="context">(beginning of the document)<span class="more">{escape(note)}</span></td>'
    texts = document.texts
    before = "".join(texts[max(0, token - AROUND) : token])[-AROUND:]
    behind = "".join(texts[token + 1 : token + 1 + AROUND])[:AROUND]
    before, own, behind = (escape(re.sub(r"\s+", " ", text)) for text in (before, texts[token], behind))
    more = f'<span class="more">{escape(note)}</span>' if note else ""
    return f'<td class="context">{before}<b>{own}</b>{behind}{more}</td>'


def _data(document, found, start):
    """The script's data as JSON that may stand inside a page; start: the token that is shown first."""
    n, m, h, shown = found.place.shape

    def packed(x, kind):
        return base64.b64encode(np.ascontiguousarray(x, kind).tobytes()).decode()

    data = {
        "texts": document.texts,
        "sizes": found.sizes,
        "heads": [f"layer {layer}, head {head + 1}" for layer in found.layers for head in range(h)],
        "shown": shown,
        "start": start,
        "before": packed(found.nats[0], "<f4"),
        "after": packed(found.nats[1], "<f4"),
        "places": packed(found.place.reshape(n, m * h, shown), "<i4"),
        "weights": packed(np.rint(65535 * found.weight), "<u2"),
    }
    return json.dumps(data).replace("<", "\\u003c")
