// The map of batch size and learning rate: a score per square, and the line that a scaling rule draws over it.
// data: {maps: [{label, batches: [...], rates: [...], scores: [[score per rate] per batch, null where none], name}], shown, power, rate,
//        here: [[batch, rate, score] of runs on this machine]}; with several maps there is a switch between them

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

const RULES = [["constant", 0, "2 3"], ["square root", 0.5, "6 3 2 3"], ["linear", 1, "6 4"]];

export default {
  render({ model, el }) {
    const data = model.get("data");
    let map = data.maps[data.shown];
    const rateAt = (place) => map.rates[Math.min(place, map.rates.length - 1)];
    if (data.maps.length > 1) {
      const choice = htmlElement(el, "select", "", "font: 13px sans-serif; margin-bottom: 6px");
      choice.setAttribute("aria-label", "model and optimizer");
      data.maps.forEach(({ label }) => htmlElement(choice, "option", label));
      choice.selectedIndex = data.shown;
      choice.addEventListener("change", () => {
        map = data.maps[choice.selectedIndex];
        el.querySelector("input[data-name=place]").dispatchEvent(new Event("input"));
      });
    }
    const settings = [
      { name: "power", label: "power of the batch size in the rule", show: String, min: 0, max: 1, step: 0.05, value: data.power },
      { name: "place", label: "learning rate of the smallest batch", min: 0, max: map.rates.length - 1, value: map.rates.indexOf(data.rate), show: (place) => digits(rateAt(place)) },
    ];
    const draw = (values) => {
      const { batches, rates, scores } = map;
      const known = scores.flat().filter((score) => score !== null);
      const low = Math.min(...known);
      const high = Math.max(...known);
      const rate = rateAt(values.place);
      const points = alongRule({ batches, rates, scores, power: values.power, rate });
      clear(svg);
      const wide = 480 / batches.length;
      const tall = 220 / rates.length;
      const x = (i) => 70 + (i + 0.5) * wide;
      const y = (k) => 230 - (k + 1) * tall;
      batches.forEach((batch, i) => {
        rates.forEach((each, k) => {
          const score = scores[i][k];
          const shade = score === null ? null : (score - low) / (high - low || 1);
          const run = map === data.maps[data.shown] && data.here.find(([b, r]) => b === batch && Math.abs(Math.log(r / each)) < 1e-6);
          const box = svgElement(svg, "rect", { x: 70 + i * wide, y: y(k), width: wide - 1, height: tall - 1, fill: shade === null ? "#eee" : `hsl(210, 70%, ${92 - 62 * shade}%)` });
          if (run) Object.entries({ stroke: "crimson", "stroke-width": 2 }).forEach(([key, value]) => box.setAttribute(key, value));
          const ran = run ? `; on this machine ${digits(run[2])}` : "";
          svgElement(box, "title", {}, `batch ${batch}, learning rate ${digits(each)}: ${score === null ? "not run" : digits(score)}${ran}`);
          if (score !== null && wide > 34 && tall > 12) svgElement(svg, "text", { x: x(i), y: y(k) + tall - 5, "text-anchor": "middle", "font-size": 10, fill: shade > 0.5 ? "white" : COLORS.line }, score.toFixed(2));
        });
        svgElement(svg, "text", { x: x(i), y: 246, "text-anchor": "middle", "font-size": 11 }, batch.toLocaleString("en"));
      });
      rates.forEach((each, k) => svgElement(svg, "text", { x: 64, y: y(k) + tall / 2 + 4, "text-anchor": "end", "font-size": 11 }, digits(each)));
      svgElement(svg, "text", { x: 310, y: 262, "text-anchor": "middle", "font-size": 12 }, known.length < batches.length * rates.length ? "batch size (grey squares: not run)" : "batch size");
      svgElement(svg, "text", { x: 14, y: 120, "font-size": 12, transform: "rotate(-90 14 120)", "text-anchor": "middle" }, "learning rate");
      const first = Math.log(rates[0]);
      const each = (Math.log(rates[rates.length - 1]) - first) / Math.max(rates.length - 1, 1);
      const height = (wanted) => 230 - ((Math.log(wanted) - first) / each + 0.5) * tall;
      const lineOf = (power) => batches.map((batch, i) => `${x(i)},${height(rate * (batch / batches[0]) ** power)}`).join(" ");
      for (const [rule, power, dashes] of RULES) {
        const line = svgElement(svg, "polyline", { points: lineOf(power), fill: "none", stroke: "#777", "stroke-dasharray": dashes });
        svgElement(line, "title", {}, `${rule} rule`);
      }
      points.forEach(({ wanted }, i) => svgElement(svg, "circle", { cx: x(i), cy: height(wanted), r: 4, fill: COLORS.load }));
      svgElement(svg, "polyline", { points: lineOf(values.power), fill: "none", stroke: COLORS.load, "stroke-width": 2 });
      const said = points.map(({ score }) => (score === null ? "not run" : fixed(score, 2)));
      words.textContent = `${map.name} along your rule (power ${values.power}), batch by batch: ${said.join(", ")}.`;
      el.dataset.total = points.reduce((sum, { score }) => sum + (score ?? 0), 0);
    };
    const values = sliders(el, settings, draw);
    const words = sentence(el);
    const svg = emptySvg(el, 560, 270, "Score by batch size and learning rate");
    draw(values);
  },
};
