// What all parts of the page use: the data, elements, quantities as people read them. Text goes into the page as text only.
const data = JSON.parse(document.getElementById('data').textContent);
const svgSpace = document.getElementById('patterns').namespaceURI;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name, value);
    else if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
const element = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(svgSpace, tag), attributes, children);

const grouped = (value, decimals = 0) =>
  value.toLocaleString('en-US', {minimumFractionDigits: decimals, maximumFractionDigits: decimals});
const mib = bytes => `${grouped(bytes / 2 ** 20, 1)} MiB`;
const percent = (part, whole) => `${grouped(100 * part / whole, 1)} %`;
function time(nanos) {
  if (nanos >= 1e10) return `${grouped(nanos / 1e9, 2)} s`;
  return `${grouped(nanos / 1e6, nanos >= 1e7 ? 1 : 3)} ms`;
}
const orNone = (value, text) => value > 0 ? text(value) : '–';
const seconds = value => time(value * 1e9);
const plural = (count, word) => `${grouped(count)} ${word}${count === 1 ? '' : 's'}`;

// A wide thing that scrolls by itself, by keyboard too.
const scrollBox = (label, child, kind = '') =>
  element('div', {class: `scroll ${kind}`, role: 'region', 'aria-label': label, tabindex: 0}, child);

// Columns but the first are numbers. `head` and `rows` hold text.
function numberTable(caption, head, rows) {
  const cell = (tag, text, column, more) => element(tag, {class: column > 0 ? 'number' : '', ...more}, text);
  return element('table', {},
    element('caption', {}, caption),
    element('thead', {}, element('tr', {}, ...head.map((text, i) => cell('th', text, i, {scope: 'col'})))),
    element('tbody', {}, ...rows.map(row => element('tr', {},
      ...row.map((text, i) => i === 0 ? cell('th', text, i, {scope: 'row'}) : cell('td', text, i))))));
}
const asTable = (caption, head, rows) => element('details', {}, element('summary', {}, 'As a table'),
  scrollBox(caption, numberTable(caption, head, rows)));

const swatch = key => element('span', {class: 'swatch', style: `--colour: var(--${key})`, 'aria-hidden': 'true'});
const svgSwatch = attributes => shape('svg', {class: 'swatch', 'aria-hidden': 'true'},
  shape('rect', {width: '100%', height: '100%', ...attributes}));
const legend = entries => element('ul', {class: 'legend'},
  ...entries.map(([mark, name]) => element('li', {}, mark, name)));

// Calls `draw(width)` with the room that `box` has, again whenever that changes.
function drawInto(box, draw) {
  let drawn = 0;
  new ResizeObserver(() => {
    if (box.clientWidth === drawn) return;
    drawn = box.clientWidth;
    draw(drawn);
  }).observe(box);
  drawn = box.clientWidth;
  draw(drawn);
}

// Round values between `start` and `end`, at least `room` apart where these are `width` apart, and the
// decimals that tell them apart.
function ticks(start, end, width, room) {
  const least = (end - start) * room / width;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(n => n * power).find(s => s >= least * (1 - 1e-9));
  const values = [];
  for (let n = Math.ceil(start / step); n * step <= end; ++n) values.push(n * step);
  return {values, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9))};
}
// Times in the unit that suits the longest.
function timeTicks(start, end, width, room) {
  const [unit, name] = end >= 1e10 ? [1e9, 's'] : [1e6, 'ms'];
  const {values, decimals} = ticks(start / unit, end / unit, width, room);
  return values.map(value => [value * unit, `${grouped(value, decimals)} ${name}`]);
}

// What is printed is all of it.
addEventListener('beforeprint', () => {
  for (const details of document.querySelectorAll('details')) details.open = true;
});
