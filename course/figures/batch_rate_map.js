// The map of batch size and learning rate: a score per square, and the line that a scaling rule draws over it.
// data: {batches: [...], rates: [...], scores: [[score per rate] per batch, null where none], power, rate, name}

// As batch_rate_map.py: from the smallest batch on, the learning rate grows with batch ** power; the square it falls into counts.
function alongRule({ batches, rates, scores, power, rate }) {
  const half = Math.log(rates[rates.length - 1] / rates[0]) / Math.max(rates.length - 1, 1) / 2;
  return batches.map((batch, i) => {
    const wanted = rate * (batch / batches[0]) ** power;
    let nearest = 0;
    rates.forEach((value, k) => {
      if (Math.abs(Math.log(value / wanted)) < Math.abs(Math.log(rates[nearest] / wanted))) nearest = k;
    });
    const inside = Math.abs(Math.log(rates[nearest] / wanted)) <= half + 1e-9;
    return { batch, wanted, score: inside ? scores[i][nearest] : null };
  });
}

export default {
  render({ model, el }) {
    const data = model.get("data");
    const known = data.scores.flat().filter((score) => score !== null);
    const low = Math.min(...known);
    const high = Math.max(...known);
    const settings = [
      { name: "power", label: "power of the batch size in the rule", show: String, min: 0, max: 1, step: 0.05, value: data.power },
      { name: "place", label: "learning rate of the smallest batch", min: 0, max: data.rates.length - 1, value: data.rates.indexOf(data.rate), show: (place) => digits(data.rates[place]) },
    ];
    const draw = (values) => {
      const all = { ...data, power: values.power, rate: data.rates[values.place] };
      const points = alongRule(all);
      clear(svg);
      const wide = 480 / data.batches.length;
      const tall = 220 / data.rates.length;
      const y = (k) => 230 - (k + 1) * tall;
      data.batches.forEach((batch, i) => {
        data.rates.forEach((rate, k) => {
          const score = data.scores[i][k];
          const shade = score === null ? null : (score - low) / (high - low || 1);
          const box = svgElement(svg, "rect", { x: 70 + i * wide, y: y(k), width: wide - 1, height: tall - 1, fill: shade === null ? "#eee" : `hsl(210, 70%, ${92 - 62 * shade}%)` });
          svgElement(box, "title", {}, `batch ${batch}, learning rate ${rate}: ${score === null ? "not run" : digits(score)}`);
          if (score !== null && wide > 34 && tall > 12) svgElement(svg, "text", { x: 70 + (i + 0.5) * wide, y: y(k) + tall - 5, "text-anchor": "middle", "font-size": 10, fill: shade > 0.5 ? "white" : COLORS.line }, score.toFixed(2));
        });
        svgElement(svg, "text", { x: 70 + (i + 0.5) * wide, y: 246, "text-anchor": "middle", "font-size": 11 }, batch.toLocaleString("en"));
      });
      data.rates.forEach((rate, k) => svgElement(svg, "text", { x: 64, y: y(k) + tall / 2 + 4, "text-anchor": "end", "font-size": 11 }, digits(rate)));
      svgElement(svg, "text", { x: 310, y: 262, "text-anchor": "middle", "font-size": 12 }, known.length < data.batches.length * data.rates.length ? "batch size (grey squares: not run)" : "batch size");
      svgElement(svg, "text", { x: 14, y: 120, "font-size": 12, transform: "rotate(-90 14 120)", "text-anchor": "middle" }, "learning rate");
      const first = Math.log(data.rates[0]);
      const each = (Math.log(data.rates[data.rates.length - 1]) - first) / Math.max(data.rates.length - 1, 1);
      const line = points.map(({ wanted }, i) => `${70 + (i + 0.5) * wide},${230 - ((Math.log(wanted) - first) / each + 0.5) * tall}`);
      points.forEach(({ wanted }, i) => svgElement(svg, "circle", { cx: line[i].split(",")[0], cy: line[i].split(",")[1], r: 4, fill: COLORS.load }));
      svgElement(svg, "polyline", { points: line.join(" "), fill: "none", stroke: COLORS.load, "stroke-width": 2 });
      const said = points.map(({ score }) => (score === null ? "not run" : fixed(score, 2)));
      words.textContent = `${data.name} along the line of power ${values.power}: ${said.join(", ")}.`;
      el.dataset.total = points.reduce((sum, { score }) => sum + (score ?? 0), 0);
    };
    const values = sliders(el, settings, draw);
    const words = sentence(el);
    const svg = emptySvg(el, 560, 270, "Score by batch size and learning rate");
    draw(values);
  },
};
