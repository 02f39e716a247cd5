// Batches of ragged sequences: what a window of sorted sequences saves in padding, and how much order it costs.
// data: {lengths: [tokens per sequence], batch_size, window, seed}

// As padded_batches.py: shuffle, cut into windows of `window` batches, sort each window by length, cut into batches.
function batchesOf({ lengths, batch_size, window, seed }) {
  const order = shuffled(lengths.length, seed);
  const batches = [];
  for (let start = 0; start < order.length; start += window * batch_size) {
    const part = order.slice(start, start + window * batch_size);
    part.sort((a, b) => lengths[a] - lengths[b] || a - b);
    for (let i = 0; i < part.length; i += batch_size) batches.push(part.slice(i, i + batch_size));
  }
  return batches;
}

function cellsPerToken(batches, lengths) {
  let cells = 0;
  let tokens = 0;
  for (const batch of batches) {
    cells += batch.length * Math.max(...batch.map((i) => lengths[i]));
    for (const i of batch) tokens += lengths[i];
  }
  return cells / tokens;
}

export default {
  render({ model, el }) {
    const data = model.get("data");
    const settings = [
      { name: "batch_size", label: "sequences per batch", min: 2, max: Math.max(64, data.batch_size), value: data.batch_size },
      { name: "window", label: "window, in batches", min: 1, max: 50, value: data.window },
      { name: "seed", label: "shuffle", min: 0, max: 9, value: data.seed },
    ];
    const draw = (values) => {
      const all = { ...data, ...values };
      const batches = batchesOf(all);
      const ratio = cellsPerToken(batches, all.lengths);
      clear(svg);
      const longest = Math.max(...all.lengths);
      const shown = batches.slice(0, 12);
      svgElement(svg, "line", { x1: 14, x2: 746, y1: 20, y2: 20, stroke: COLORS.wait });
      svgElement(svg, "text", { x: 14, y: 14, "font-size": 12 }, `${counted(longest, "token")}, the longest sequence of the set`);
      const gap = 6;
      const width = (740 - gap * shown.length) / shown.length;
      shown.forEach((batch, b) => {
        const top = Math.max(...batch.map((i) => all.lengths[i]));
        const left = 14 + b * (width + gap);
        const bar = width / batch.length;
        svgElement(svg, "rect", { x: left, y: 170 - (150 * top) / longest, width, height: (150 * top) / longest, fill: COLORS.wait });
        batch.forEach((i, k) => {
          const height = (150 * all.lengths[i]) / longest;
          svgElement(svg, "rect", { x: left + k * bar, y: 170 - height, width: bar > 3 ? bar - 0.4 : bar, height, fill: "#4d4d4d" });
        });
      });
      svgElement(svg, "text", { x: 14, y: 188, "font-size": 12 }, "A dark bar is a sequence with its tokens, light grey is padding. Batches in the order of the windows.");
      words.textContent = `Windows of ${all.window} × ${all.batch_size} sequences: ${fixed(cellsPerToken(shown, all.lengths), 2)} cells per token in the first ${shown.length} batches, ${fixed(ratio, 2)} in all ${batches.length}.`;
      el.dataset.total = ratio;
    };
    const values = sliders(el, settings, draw);
    const words = sentence(el);
    const svg = emptySvg(el, 760, 200, "Batches with their padding");
    draw(values);
  },
};
