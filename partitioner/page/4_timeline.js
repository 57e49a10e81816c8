// The simulated step: what each rank computes and sends when, and why it waits.
function timeline() {
  const kRow = 26, kLane = 4, kGap = 12, kAxis = 20, kMostRanks = 64, kActionRoom = 16;
  const {makespan, messages} = data.step;
  const ranks = data.step.ranks.slice(0, kMostRanks);
  const rowHeight = kRow + 2 * kLane + kGap;
  const rowTop = r => kAxis + r * rowHeight;
  const leastWidth = kActionRoom * Math.max(...ranks.map(rank => rank.actions.length));
  const height = kAxis + ranks.length * rowHeight;
  const causeNames = Object.fromEntries(data.causes.map(({key, name}) => [key, name]));
  const kindNames = {forward: 'forward', backward: 'backward', backward_input: 'backward of inputs',
    backward_weight: 'backward of weights'};
  const span = item => `${time(item.end - item.start)}, from ${time(item.start)} to ${time(item.end)}`;

  const section = document.getElementById('timeline');
  const status = element('output', {'aria-live': 'polite'});
  const box = element('div', {class: 'scroll', tabindex: 0, role: 'region',
    'aria-label': 'Timeline; arrow keys go through what each rank does'});
  let zoom = null, lit = null, items = [];  // zoom 1 is as wide as the box

  const light = item => {
    lit?.node.classList.remove('lit');
    lit = item;
    item.node.classList.add('lit');
    status.textContent = item.says;
  };
  const drawRank = (rank, r, x) => {
    const top = rowTop(r), nodes = [shape('rect', {class: 'row', x: 0, y: top, width: x(makespan), height: kRow})];
    const add = (item, says, attributes, label) => {
      const width = Math.max(x(item.end) - x(item.start), .5);
      const node = shape('rect', {x: x(item.start), y: top, width, height: kRow, ...attributes});
      nodes.push(node);
      items.push({rank: r, start: item.start, says: `${rankName(r)}: ${says}, ${span(item)}`, node});
      if (item.recompute > 0) {
        nodes.push(shape('rect', {class: 'again', x: x(item.start), y: top + kRow - 6, width: x(item.recompute), height: 6,
          'pointer-events': 'none'}));
      }
      if (label && width > 9 * label.length + 2) {
        nodes.push(shape('text', {class: 'inside', x: x(item.start) + width / 2, y: top + 16, 'text-anchor': 'middle'}, label));
      }
    };
    for (const bubble of rank.bubbles) {
      add(bubble, `waits, ${causeNames[bubble.cause]}`,
        {class: 'bubble', fill: `url(#${bubble.cause})`, 'data-cause': bubble.cause});
    }
    for (const action of rank.actions) {
      const again = action.recompute > 0 ? `, ${time(action.recompute)} of it recompute` : '';
      add(action, `${kindNames[action.kind]} of stage ${action.stage}, micro-batch ${action.micro_batch}${again}`,
        {class: `action edge ${action.kind}`}, String(action.micro_batch));
    }
    return nodes;
  };
  const drawMessage = (message, x) => {
    const lane = message.direction === 'forward' ? 0 : kLane;
    const node = shape('rect', {class: `message ${message.direction}`, x: x(message.start),
      y: rowTop(message.from) + kRow + 2 + lane, width: Math.max(x(message.end) - x(message.start), 1), height: kLane - 1});
    items.push({rank: message.from, start: message.start, node, says: `message ${message.number}, ` +
      `${message.direction === 'forward' ? 'activations' : 'gradients'} of micro-batch ${message.micro_batch} ` +
      `from ${rankName(message.from)} to ${rankName(message.to)}, ${mib(message.bytes)}, ${span(message)}`});
    return node;
  };
  const draw = room => {
    zoom ??= Math.max(1, leastWidth / room);
    const width = Math.max(room * zoom - 2, 100);
    const x = nanos => nanos / makespan * width;
    items = [];
    lit = null;
    const grid = timeTicks(0, makespan, width, 90).flatMap(([t, text]) => [
      shape('line', {class: 'grid', x1: x(t), x2: x(t), y1: kAxis - 4, y2: height}),
      x(t) < width - 50 ? shape('text', {x: x(t) + 3, y: 12}, text) : '']);
    box.replaceChildren(shape('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img',
      'aria-labelledby': 'step-title step-description'},
      shape('title', {id: 'step-title'}, 'Timeline of one simulated step'),
      shape('desc', {id: 'step-description'}, `One row for each of ${ranks.length} ranks, ${time(makespan)} from left to right; ` +
        'below each row what the rank sends. The table below has the sums.'),
      ...grid, ...ranks.flatMap((rank, r) => drawRank(rank, r, x)),
      ...messages.filter(m => m.from < ranks.length).map(m => drawMessage(m, x))));
    items.sort((a, b) => a.rank - b.rank || a.start - b.start);
  };
  const lightNode = event => {
    const item = items.find(({node}) => node === event.target);
    if (item) light(item);
  };
  box.addEventListener('pointermove', lightNode);
  box.addEventListener('click', lightNode);
  box.addEventListener('keydown', event => {
    const move = {ArrowRight: 1, ArrowLeft: -1}[event.key], turn = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!move && !turn) return;
    event.preventDefault();
    const at = items.indexOf(lit);
    const next = lit === null ? items[0] : move ? items[at + move]
      : items.find(item => item.rank === lit.rank + turn && item.start >= lit.start) ??
        items.findLast(item => item.rank === lit.rank + turn);
    if (!next) return;
    light(next);
    next.node.scrollIntoView({block: 'nearest', inline: 'nearest'});
  });
  const zoomTo = value => { zoom = Math.min(Math.max(value, 1), 64); draw(box.clientWidth); };
  const button = (text, label, value) => element('button', {type: 'button', 'aria-label': label, click: () => zoomTo(value())}, text);

  const kinds = Object.keys(kindNames).filter(kind => ranks.some(rank => rank.actions.some(action => action.kind === kind)));
  const entries = kinds.map(kind => [svgSwatch({class: kind}), kindNames[kind]]);
  if (ranks.some(rank => rank.actions.some(action => action.recompute > 0))) {
    entries.push([svgSwatch({class: 'again'}), 'part of a backward that recomputes (it is spread over it)']);
  }
  entries.push(...data.causes.map(({key, name}) => [svgSwatch({fill: `url(#${key})`}), `waits: ${name}`]));
  entries.push([svgSwatch({class: 'message forward'}), 'sends activations'], [svgSwatch({class: 'message backward'}), 'sends gradients']);

  const sum = (list, key) => list.filter(b => b.cause === key).reduce((all, b) => all + b.end - b.start, 0);
  const cell = nanos => `${time(nanos)} (${percent(nanos, makespan)})`;
  const rows = data.step.ranks.map((rank, r) => [rankName(r),
    cell(rank.actions.reduce((all, a) => all + a.end - a.start, 0)),
    ...data.causes.map(({key}) => cell(sum(rank.bubbles, key)))]);
  const names = element('div', {class: 'names', style: `padding-top: ${kAxis}px`},
    ...ranks.map((_, r) => element('div', {style: `height: ${rowHeight}px; padding-bottom: ${rowHeight - kRow}px`}, rankName(r))));
  const missing = data.step.ranks.length - ranks.length;
  section.append(
    element('p', {class: 'hint'}, `${time(makespan)} from left to right. Numbers are micro-batches. Touch, point at, or go ` +
      'through the bars with the arrow keys to read one.', missing > 0 ? ` ${missing} more ranks are in the trace file only.` : ''),
    legend(entries),
    element('p', {class: 'controls'}, 'Zoom', button('−', 'zoom out', () => zoom / 2), button('fit', 'fit to the width', () => 1),
      button('+', 'zoom in', () => zoom * 2)),
    element('div', {class: 'chart'}, names, box), status,
    asTable('Time of each rank in a step', ['rank', 'computes', ...data.causes.map(({name}) => `waits: ${name}`)], rows));
  drawInto(box, draw);
}
timeline();
