// Shows a document and what its tokens retrieved. The page's data: texts of all tokens; for each token its nats under
// both memories (nan if it is not predicted); for the last n tokens, per head, the places retrieved and the attention
// to them (in 65535ths). Everything is inserted as text, never as markup.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const array = (name, Kind) => {
  const bytes = Uint8Array.from(atob(data[name]), c => c.charCodeAt(0));
  return new Kind(bytes.buffer);
};
const [before, after] = [array("before", Float32Array), array("after", Float32Array)];
const places = array("places", Int32Array), weights = array("weights", Uint16Array);
const texts = data.texts, total = texts.length, heads = data.heads.length, shown = data.shown;
const first = total - places.length / (heads * shown);  // token from which on there are details
const PAGE = 3000, BEGINNING = -1, NOTHING = -2;
const $ = id => document.getElementById(id);
let page = 0, pinned = null, current = null, lit = [];

const make = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
};
const gain = i => Number.isNaN(before[i]) ? 0 : before[i] - after[i];
const number = x => x.toLocaleString("en");

function colour(i) {
  const g = gain(i), much = Math.min(1, Math.abs(g) / 3);
  return much < 0.02 ? "" : g > 0 ? `rgba(11, 95, 165, ${0.5 * much})` : `rgba(210, 120, 30, ${0.5 * much})`;
}

function turn(to) {
  page = Math.max(0, Math.min(Math.floor((total - 1) / PAGE), to));
  const box = $("text"), end = Math.min(total, (page + 1) * PAGE), nodes = document.createDocumentFragment();
  for (let i = page * PAGE; i < end; i++) {
    const span = make("span", texts[i]);
    span.dataset.i = i;
    span.style.backgroundColor = colour(i);
    nodes.append(span);
  }
  box.replaceChildren(nodes);
  box.scrollTop = 0;
  lit = [];
  $("where").textContent = `tokens ${number(page * PAGE)} to ${number(end - 1)} of ${number(total)}`;
}

const node = i => Math.floor(i / PAGE) === page ? $("text").children[i - page * PAGE] : undefined;

// [place, attention, heads] of what token i retrieved, in the chosen head or in all, most attention first.
function retrieved(i) {
  if (i < first) return [];
  const chosen = $("head").value, found = new Map();
  for (let h = 0; h < heads; h++) {
    if (chosen !== "all" && Number(chosen) !== h) continue;
    for (let j = 0; j < shown; j++) {
      const at = ((i - first) * heads + h) * shown + j, place = places[at];
      if (place === NOTHING || !weights[at]) continue;
      const old = found.get(place) || [place, 0, []];
      found.set(place, [place, old[1] + weights[at] / 65535, [...old[2], data.heads[h]]]);
    }
  }
  const parts = chosen === "all" ? heads : 1;
  return [...found.values()].map(([p, w, names]) => [p, w / parts, names]).sort((a, b) => b[1] - a[1]);
}

// Token i with so many characters before and behind it.
function context(i, left, right) {
  const box = make("div", texts.slice(Math.max(0, i - left), Math.max(0, i)).join("").slice(-left), "context");
  box.append(make("b", i < 0 ? "(beginning of the document)" : texts[i] || "\u00b7"));
  box.append(texts.slice(i + 1, i + 1 + right).join("").slice(0, right));
  return box;
}

function look(i) {
  for (const old of lit) old.classList.remove("found", "chosen");
  lit = [];
  current = i;
  const own = node(i), found = retrieved(i), top = found.length ? found[0][1] : 1;
  if (own) { own.classList.add("chosen"); lit.push(own); }
  for (const [place, weight] of found) {
    const there = place >= 0 && node(place);
    if (!there) continue;
    there.classList.add("found");
    there.style.setProperty("--much", Math.max(0.15, weight / top));
    lit.push(there);
  }
  const panel = $("panel"), list = make("ol");
  panel.replaceChildren(make("h3", `Token ${number(i)}`), context(i, 200, 100));
  const said = Number.isNaN(before[i]) ? "not predicted" :
    `${before[i].toFixed(2)} nats with memory ${number(data.sizes[0])}, ${after[i].toFixed(2)} with ` +
    `${number(data.sizes[1])}: gained ${gain(i).toFixed(2)}`;
  panel.append(make("p", said, "soft"));
  if (i < first) panel.append(make("p", `What was retrieved is kept from token ${number(first)} on.`));
  else panel.append(make("h3", found.length ? "Retrieved to predict it" : "The memory was empty"));
  for (const [place, weight, names] of found.slice(0, 12)) {
    const item = make("li"), back = place < 0 ? "" : `, ${number(i - place)} tokens back`;
    item.append(make("div", `${(100 * weight).toFixed(weight < 0.1 ? 1 : 0)} %${back} (${names.join(", ")})`, "soft"), context(place, 90, 90));
    if (place >= 0) item.onclick = () => go(place, false);
    list.append(item);
  }
  panel.append(list);
}

// Brings token i into view; with `pin` it becomes the one that is looked at.
function go(i, pin = true) {
  i = Math.max(0, Math.min(total - 1, i));
  if (!node(i)) turn(Math.floor(i / PAGE));
  if (pin) pinned = i;
  look(pin ? i : current ?? i);
  const box = $("text"), there = node(i);
  box.scrollTop += there.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

const token = event => event.target.dataset?.i === undefined ? null : Number(event.target.dataset.i);
$("text").addEventListener("mouseover", e => { if (pinned === null && token(e) !== null) look(token(e)); });
$("text").addEventListener("click", e => {
  if (token(e) === null) return;
  pinned = pinned === token(e) ? null : token(e);
  look(token(e));
});
document.addEventListener("keydown", e => {
  if (["INPUT", "SELECT"].includes(e.target.tagName) || current === null) return;
  if (e.key === "ArrowRight") { e.preventDefault(); go(current + 1); }
  if (e.key === "ArrowLeft") { e.preventDefault(); go(current - 1); }
  if (e.key === "Escape") pinned = null;
});
for (const row of document.querySelectorAll("tr[data-token]")) row.onclick = () => {
  go(Number(row.dataset.token));
  $("read").scrollIntoView();
};
data.heads.forEach((name, h) => { const one = make("option", name); one.value = h; $("head").append(one); });
$("head").onchange = () => { if (current !== null) look(current); };
$("back").onclick = () => turn(page - 1);
$("on").onclick = () => turn(page + 1);
$("token").onchange = e => { if (e.target.value !== "") go(Number(e.target.value)); };
turn(Math.floor(data.start / PAGE));
go(data.start);
