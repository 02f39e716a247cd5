// The backward pass of a data-parallel step: what it computes, when gradients are sent, what memory holds.
// data: {layers: [{name, backward_ms, gradient_mb, activation_mb}] in the order of backward, bucket_mb, gbit, latency_ms,
// first_mb or null}

// As backward_timeline.py: a bucket is sent when all of its gradients are there and the wire is free.
function schedule({ layers, bucket_mb, gbit, latency_ms, first_mb }) {
  const computed = [];
  const sent = [];
  let now = 0;
  let wire = 0;
  let bucket = 0;
  let names = [];
  layers.forEach((layer, i) => {
    computed.push({ name: layer.name, begin: now, end: now + layer.backward_ms });
    now += layer.backward_ms;
    bucket += layer.gradient_mb;
    names.push(layer.name);
    const cap = first_mb && !sent.length ? Math.min(first_mb, bucket_mb) : bucket_mb;
    if (bucket >= cap || i === layers.length - 1) {
      const begin = Math.max(now, wire);
      wire = begin + latency_ms + (8 * bucket) / gbit;
      sent.push({ name: names.join(", "), begin, end: wire, mb: bucket });
      bucket = 0;
      names = [];
    }
  });
  return { computed, sent, compute: now, total: Math.max(now, wire) };
}

export default {
  render({ model, el }) {
    const data = model.get("data");
    const gradients = data.layers.reduce((sum, layer) => sum + layer.gradient_mb, 0);
    const tenth = 10 ** Math.floor(Math.log10(gradients)) / 10;
    const most_mb = Math.ceil(gradients / tenth) * tenth;
    const backward_ms = data.layers.reduce((sum, layer) => sum + layer.backward_ms, 0);
    const most_ms = Math.max(5, Math.ceil(backward_ms / 4));
    const settings = [
      { name: "bucket_mb", label: "a bucket is sent from", min: 0, max: most_mb, step: tenth, value: Math.min(data.bucket_mb, most_mb), unit: " MB" },
      { name: "gbit", label: "wire", min: 0.1, max: Math.max(10, Math.ceil(4 * data.gbit)), step: 0.1, value: data.gbit, unit: " Gbit/s" },
      { name: "latency_ms", label: "cost of a message", min: 0, max: most_ms, step: most_ms / 100, value: data.latency_ms, unit: " ms" },
    ];
    const draw = (values) => {
      const all = { ...data, ...values };
      const { computed, sent, compute, total } = schedule(all);
      clear(svg);
      const x = (time) => 90 + (650 * time) / total;
      const box = (span, y, fill, label) => {
        const rect = svgElement(svg, "rect", { x: x(span.begin), y, width: Math.max(x(span.end) - x(span.begin) - 0.8, 0.4), height: 20, fill });
        svgElement(rect, "title", {}, label);
        if (x(span.end) - x(span.begin) > 6 * span.name.length) svgElement(svg, "text", { x: (x(span.begin) + x(span.end)) / 2, y: y + 14, "text-anchor": "middle", "font-size": 10, fill: "white" }, span.name);
      };
      if (total > compute) {
        const rect = svgElement(svg, "rect", { x: x(compute), y: 10, width: x(total) - x(compute), height: 20, fill: COLORS.wait });
        svgElement(rect, "title", {}, `waits ${digits(total - compute)} ms`);
        if (x(total) - x(compute) > 40) svgElement(svg, "text", { x: (x(compute) + x(total)) / 2, y: 24, "text-anchor": "middle", "font-size": 10 }, "waits");
      }
      ["backward", "messages", "memory"].forEach((text, row) => svgElement(svg, "text", { x: 84, y: [24, 50, 100][row], "text-anchor": "end", "font-size": 12 }, text));
      computed.forEach((span) => box(span, 10, COLORS.compute, `backward of ${span.name}: ${digits(span.end - span.begin)} ms`));
      sent.forEach((span) => box(span, 36, COLORS.send, `${digits(span.mb)} MB in ${digits(span.end - span.begin)} ms: ${span.name}`));
      // activations are freed as backward goes on, gradients come
      let held = all.layers.reduce((sum, layer) => sum + layer.activation_mb, 0);
      const levels = [held];
      all.layers.forEach((layer) => levels.push((held += layer.gradient_mb - layer.activation_mb)));
      const most = Math.max(...levels);
      [...computed, { begin: compute, end: total }].forEach((span, i) => svgElement(svg, "rect", { x: x(span.begin), y: 130 - (60 * levels[i]) / most, width: Math.max(x(span.end) - x(span.begin), 0), height: (60 * levels[i]) / most, fill: COLORS.memory }));
      svgElement(svg, "text", { x: 90, y: 146, "font-size": 12 }, `memory: activations and gradients, ${digits(most)} MB at most`);
      svgElement(svg, "text", { x: 740, y: 146, "text-anchor": "end", "font-size": 12 }, `${digits(total)} ms`);
      words.textContent = `${counted(sent.length, "message")}: backward takes ${fixed(compute, 1)} ms, then the step waits ${fixed(total - compute, 1)} ms for the wire.`;
      el.dataset.total = total;
    };
    const values = sliders(el, settings, draw);
    const words = sentence(el);
    const svg = emptySvg(el, 760, 156, "Timeline of a data-parallel backward pass");
    draw(values);
  },
};
