// What all figures of the course draw with: sliders, SVG, numbers.  No framework, no network.

const COLORS = { compute: "#1f77b4", wait: "#d9d9d9", load: "#ff7f0e", send: "#2ca02c", memory: "#c5b0d5", line: "#444" };

function svgElement(parent, tag, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  parent.appendChild(element);
  return element;
}

function htmlElement(parent, tag, text = "", style = "") {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (style) element.style.cssText = style;
  parent.appendChild(element);
  return element;
}

// A slider per setting {name, label, min, max, step, value, unit or show}; `redraw(values)` runs at every change.
function sliders(el, settings, redraw) {
  const values = {};
  const table = htmlElement(el, "div", "", "display: grid; grid-template-columns: auto 14em auto; gap: 2px 10px; justify-content: start; font: 13px sans-serif");
  for (const { name, label, min, max, step = 1, value, unit = "", show = (number) => `${digits(number)}${unit}` } of settings) {
    values[name] = value;
    const caption = htmlElement(table, "label", label);
    const input = htmlElement(table, "input");
    const shown = htmlElement(table, "output", show(value));
    Object.assign(input, { type: "range", min, max, step, value, id: `${name}-${Math.random().toString(36).slice(2)}` });
    input.dataset.name = name;
    caption.htmlFor = input.id;
    input.addEventListener("input", () => {
      values[name] = Number(input.value);
      shown.textContent = show(values[name]);
      redraw(values);
    });
  }
  return values;
}

function emptySvg(el, width, height, label) {
  const svg = svgElement(el, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.style.cssText = "width: 100%; max-width: 760px; display: block; background: white";
  return svg;
}

function clear(element) {
  while (element.firstChild) element.removeChild(element.firstChild);
}

// The sentence about what is drawn, the same as the caption that Python writes.
function sentence(el) {
  return htmlElement(el, "p", "", "font: 13px sans-serif; margin: 6px 0; white-space: pre-line");
}

// What each colour means, from `x` on: entries [colour, meaning].
function legend(svg, x, y, entries) {
  for (const [color, meaning] of entries) {
    svgElement(svg, "rect", { x, y: y - 9, width: 10, height: 10, fill: color });
    svgElement(svg, "text", { x: x + 14, y, "font-size": 12 }, meaning);
    x += 32 + 6.5 * meaning.length;
  }
}

function fixed(number, decimals) {
  return number.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

function counted(n, thing) {
  return `${n.toLocaleString("en")} ${thing}${n === 1 ? "" : "s"}`;
}

function digits(number, n = 3) {
  return Number(number.toPrecision(n)).toLocaleString("en");
}

// The numbers 0 to n - 1 in an order that `seed` decides, the same in padded_batches.py (mulberry32 and Fisher-Yates).
function shuffled(n, seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const order = Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
