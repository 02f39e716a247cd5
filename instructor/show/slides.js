const all = [...document.querySelectorAll(".slide")];
let at = Math.min(Math.max((parseInt(location.hash.slice(1)) || 1) - 1, 0), all.length - 1);
const show = to => {
  at = Math.min(Math.max(to, 0), all.length - 1);
  all.forEach((slide, i) => slide.classList.toggle("shown", i == at));
  document.body.dataset.at = `${at + 1} / ${all.length}`; history.replaceState(null, "", `#${at + 1}`);
};
const plays = event => event.target.closest?.(".course-figure"); // with a slider of a figure
addEventListener("keydown", event => {
  if (plays(event)) return;
  const step = {ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1, Home: -all.length, End: all.length};
  if (event.key in step) { event.preventDefault(); show(at + step[event.key]); }
});
addEventListener("click", event => plays(event) || show(at + (event.clientX < innerWidth / 3 ? -1 : 1)));
show(at);
