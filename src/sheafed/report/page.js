"use strict";
// The choices fill the {braces} in the keys of figures; then every place draws the figure of its key.
const source = document.getElementById("figures").textContent;
const form = document.getElementById("choices");
const dark = matchMedia("(prefers-color-scheme: dark)");
let figures;

function paint() {
  // The figures contain placeholders for the colours of the theme.
  const colours = { "rgb(1,2,3)": "--ink", "rgb(1,2,4)": "--faint", "rgb(1,2,5)": "--card" };
  const theme = getComputedStyle(document.documentElement);
  let text = source;
  for (const [placeholder, name] of Object.entries(colours))
    text = text.replaceAll(placeholder, theme.getPropertyValue(name).trim());
  figures = JSON.parse(text);
  draw();
}

function draw() {
  const chosen = Object.fromEntries(new FormData(form));
  for (const [name, value] of Object.entries(chosen))
    for (const part of document.querySelectorAll(`[data-${name}]`))
      part.hidden = part.dataset[name] !== value;
  for (const place of document.querySelectorAll("[data-figure]")) {
    const key = place.dataset.figure.replace(/{(\w+)}/g, (_, name) => chosen[name]);
    const figure = figures[key];
    (place.closest("figure") || place).hidden = !figure;
    place.dataset.shown = key;
    if (!figure) continue;
    // Numbers are unreadable in narrow cells; they are still shown on hover.
    if (place.clientWidth / figure.layout.meta?.columns < 32)
      for (const trace of figure.data) delete trace.texttemplate;
    Plotly.react(place, figure.data, figure.layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: !figure.layout.meta?.small,
      modeBarButtons: [["toImage"]],
    });
  }
}

document.addEventListener("change", (event) => {
  if (event.target.form === form) draw();
});
dark.addEventListener("change", paint);
paint();
