const up = document.body.dataset.up, field = document.getElementById("search");
const found = document.getElementById("found");
field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.replaceChildren();
  if (!words.length) return;
  const rank = ([, page, title, text]) => {
    const head = (page + " " + title).toLowerCase();
    if (!words.every(word => head.includes(word) || text.includes(word))) return 0;
    return 1 + words.filter(word => head.includes(word)).length;
  };
  const ranked = SECTIONS.map(s => [rank(s), s]).filter(([r]) => r).sort((a, b) => b[0] - a[0]).slice(0, 12);
  for (const [, [path, page, title]] of ranked) {
    const link = document.createElement("a"), small = document.createElement("small");
    link.href = up + path; link.textContent = title; small.textContent = page;
    link.append(small); found.append(link);
  }
  if (!ranked.length) found.textContent = "nothing found";
});
