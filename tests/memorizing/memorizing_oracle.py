"""The Memorizing Transformer in NumPy, float64: token by token, lists for state. Imports nothing that it checks."""

import numpy as np


def unit(x):
    x = np.asarray(x, np.float64)
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def norm(x, scale):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * np.asarray(scale, np.float64)


def softmax(scores):
    if not len(scores):
        return np.zeros(0)
    p = np.exp(np.asarray(scores) - max(scores))
    return p / p.sum()


# The first distance of every bucket from 16 on: 16 + floor(16 ln(n / 16) / ln 8), worked out by hand.
FIRST = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def bias_bucket(distance):
    if distance < 16:
        return max(distance, 0)
    return 15 + sum(distance >= first for first in FIRST) if distance < 113 else 31


def attend(q, keys, values, scale, table, distances):
    """One query and the keys it may see -> output, scores. Distances count from key to query."""
    scores = [
        scale * (q @ k + (0 if table is None else table[bias_bucket(n)])) for k, n in zip(keys, distances, strict=True)
    ]
    return softmax(scores) @ np.array(values) if scores else np.zeros_like(q), scores


class Slot:
    """What one slot remembers, for one layer."""

    def __init__(self):
        self.cache, self.memory = [], []  # (keys [h,d], values [h,d]) of the last W tokens, of the document


class Oracle:
    """Runs a Model's parameters; reads its settings but none of its code."""

    def __init__(self, model, params, slots):
        self.m = model
        self.params = {k: np.asarray(v, np.float64) for k, v in params.items() if k != "layers"}
        self.layers = [
            {name: np.asarray(x[i], np.float64) for name, x in flat(stack).items()}
            for (n, _), stack in zip(model.runs, params["layers"], strict=True)
            for i in range(n)
        ]
        self.slots = [[Slot() for _ in self.layers] for _ in range(slots)]

    def step(self, batch):
        """Nats [b,l] of one segment per slot."""
        out = []
        for b, slots in enumerate(self.slots):
            if batch["document_start"][b]:
                self.slots[b] = slots = [Slot() for _ in self.layers]
            real = batch["decoder_segment_ids"][b] > 0
            x = self.params["embedding"][batch["decoder_input_tokens"][b]]
            for number, (layer, slot) in enumerate(zip(self.layers, slots, strict=True), 1):
                remembers = bool(self.m.memory) and number in self.m.memory_layers
                x = x + self.attention(norm(x, layer["attention_norm/scale"]), layer, slot, real, remembers)
                y = norm(x, layer["feedforward_norm/scale"])
                x = x + np.maximum(y @ layer["feedforward/in/kernel"], 0) @ layer["feedforward/out/kernel"]
            logits = norm(x, self.params["norm"]) @ self.params["embedding"].T / np.sqrt(self.m.width)
            top = logits.max(-1)
            lse = top + np.log(np.exp(logits - top[:, None]).sum(-1))
            out.append(lse - logits[np.arange(len(lse)), batch["decoder_target_tokens"][b]])
        return np.array(out)

    def attention(self, x, layer, slot, real, remembers):
        m, length = self.m, len(x)
        q, k, v = (np.einsum("le,ehd->lhd", x, layer[f"projections/{name}"]) for name in ("query", "key", "value"))
        scale = np.full(m.heads, m.head_width**-0.5)
        if m.normalise:
            q, k, scale = unit(q), unit(k), np.abs(layer["projections/scale"])
        table = layer.get("bias")
        out = np.zeros((length, m.heads, m.head_width))
        past, W = slot.cache, m.cache
        for i, h in np.ndindex(length, m.heads):
            seen = [j for j in range(i + (not m.strict)) if real[j] and (not W or i - j <= W)]
            keys, values, distances = [k[j, h] for j in seen], [v[j, h] for j in seen], [i - j for j in seen]
            for age in range(W):  # cache positions -1, -2, ...
                distance = i + 1 + age
                if distance > W:
                    break
                if age < len(past):
                    pair = past[-1 - age]
                    if pair is None:
                        continue
                elif m.null_keys:
                    pair = np.zeros((2, m.heads, m.head_width))
                else:
                    continue
                keys, values = [*keys, pair[0][h]], [*values, pair[1][h]]
                distances = [*distances, distance]
            o, scores = attend(q[i, h], keys, values, scale[h], None if table is None else table[h], distances)
            if remembers:
                o = self.remember(o, scores, values, q[i, h], scale[h], slot, h, layer)
            out[i, h] = o
        slot.cache = [*past, *[(k[j], v[j]) if real[j] else None for j in range(length)]]
        slot.memory += [(k[j], v[j]) for j in range(length) if real[j] or m.store_padding]
        slot.memory = slot.memory[-m.memory :] if m.memory else []
        return np.einsum("lhd,hde->le", out, layer["out"])

    def remember(self, local, local_scores, local_values, q, scale, slot, h, layer):
        m = self.m
        ranked = sorted(slot.memory, key=lambda pair: -(q @ pair[0][h]))[: m.neighbours]
        scores = [scale * (q @ pair[0][h]) for pair in ranked]
        values = [pair[1][h] for pair in ranked]
        if m.null_keys:
            scores += [0.0] * (m.neighbours - len(ranked))
            values += [np.zeros_like(q)] * (m.neighbours - len(ranked))
        if m.combination == "joint":
            p = softmax([*local_scores, *scores])
            return p @ np.array([*local_values, *values]) if len(p) else np.zeros_like(q)
        g = 1 / (1 + np.exp(-layer["gate"][h]))
        return (1 - g) * local + g * (softmax(scores) @ np.array(values) if scores else 0)


def flat(tree, path=()):
    if not isinstance(tree, dict):
        return {"/".join(path): tree}
    return {name: leaf for key, sub in tree.items() for name, leaf in flat(sub, (*path, key)).items()}
