// A pass over a DataLoader: who works when, and for which batch the training loop waits.
// data: {load_ms: [ms per batch, measured], step_ms, workers, batches, prefetch, start_ms}

// As loader_pipeline.py: batch i belongs to worker i % workers, is asked for when batch i - prefetch * workers
// has arrived, and is handed to the loop in order.
function schedule({ load_ms, step_ms, workers, batches, prefetch, start_ms }) {
  const spans = [];
  const received = [];
  const free = new Array(Math.max(workers, 1)).fill(workers ? start_ms : 0);
  let loop = 0;
  const span = (row, kind, batch, begin, end) => spans.push({ row, kind, batch, begin, end });
  const ready = [];
  for (let i = 0; i < batches; i++) {
    const load = load_ms[i % load_ms.length];
    if (!workers) {
      span(0, "load", i, loop, loop + load);
      ready.push(loop + load);
    } else {
      // what this batch waits for has already been received: batches are made in order of their numbers here
      const asked = i < prefetch * workers ? 0 : received[i - prefetch * workers];
      const begin = Math.max(free[i % workers], asked);
      free[i % workers] = begin + load;
      span(1 + (i % workers), "load", i, begin, begin + load);
      ready.push(begin + load);
    }
    received.push(Math.max(loop, ready[i]));
    if (workers && received[i] > loop) span(0, "wait", i, loop, received[i]);
    span(0, "compute", i, received[i], received[i] + step_ms);
    loop = received[i] + step_ms;
  }
  return { spans, total: loop };
}

export default {
  render({ model, el }) {
    const data = model.get("data");
    const settings = [
      { name: "workers", label: "workers", min: 0, max: 8, value: data.workers },
      { name: "batches", label: "batches of the pass", min: 4, max: 60, value: data.batches },
      { name: "prefetch", label: "batches asked ahead, per worker", min: 1, max: 8, value: data.prefetch },
      { name: "step_ms", label: "step of the loop", min: 0, max: 4 * Math.ceil(data.step_ms + 1), step: 0.5, value: data.step_ms, unit: " ms" },
      { name: "start_ms", label: "start of the workers", min: 0, max: 200, step: 5, value: data.start_ms, unit: " ms" },
    ];
    const draw = (values) => {
      const all = { ...data, ...values };
      const { spans, total } = schedule(all);
      clear(svg);
      const rows = 1 + all.workers;
      const height = 22 * rows + 54;
      svg.setAttribute("viewBox", `0 0 760 ${height}`);
      const x = (time) => 90 + (650 * time) / total;
      for (let row = 0; row < rows; row++) {
        svgElement(svg, "text", { x: 84, y: 22 * row + 26, "text-anchor": "end", "font-size": 12 }, row ? `worker ${row - 1}` : "loop");
      }
      for (const { row, kind, batch, begin, end } of spans) {
        const box = svgElement(svg, "rect", { x: x(begin), y: 22 * row + 12, width: Math.max(x(end) - x(begin) - 0.6, 0.4), height: 18, fill: COLORS[kind] });
        svgElement(box, "title", {}, `${kind}, batch ${batch}: ${digits(begin)} to ${digits(end)} ms`);
        if (x(end) - x(begin) > 14 && kind !== "wait") svgElement(svg, "text", { x: (x(begin) + x(end)) / 2, y: 22 * row + 25, "text-anchor": "middle", "font-size": 10, fill: "white" }, String(batch));
      }
      svgElement(svg, "text", { x: 90, y: height - 26, "font-size": 12 }, "0 ms");
      svgElement(svg, "text", { x: 740, y: height - 26, "text-anchor": "end", "font-size": 12 }, `${digits(total)} ms`);
      legend(svg, 90, height - 6, [[COLORS.load, "loads a batch"], [COLORS.compute, "step of the loop"], [COLORS.wait, "loop waits"]]);
      const mean = all.load_ms.reduce((a, b) => a + b, 0) / all.load_ms.length;
      const formula = all.workers ? Math.max(mean / all.workers, all.step_ms) : mean + all.step_ms;
      const named = all.workers ? "max(load / workers, step)" : "load + step";
      const each = total / all.batches;
      words.textContent = `${all.batches} batches, ${counted(all.workers, "worker")}: ${fixed(each, 1)} ms per batch, of which the loop waits ${fixed(Math.max(each - all.step_ms, 0), 1)} ms.\n${named} says ${fixed(formula, 1)} ms.`;
      el.dataset.total = total;
    };
    const values = sliders(el, settings, draw);
    const words = sentence(el);
    const svg = emptySvg(el, 760, 120, "Timeline of a pass over a DataLoader");
    draw(values);
  },
};
