// Step time against memory of the fullest rank, for plans that none beats in both.
function front() {
  const points = report.front;
  if (points.length === 0) return;
  const says = p => `${p.is_chosen ? 'Chosen: ' : ''}step ${seconds(p.step_seconds)}, fullest rank ${mib(p.peak)}; ` +
    `${plural(p.stages, 'stage')}${p.replicas > 1 ? ` × ${p.replicas} replicas` : ''}, micro-batch ${p.micro_batch}, ` +
    `${p.schedule}, ${plural(p.recomputed, 'block')} recomputed${p.transfers === 'relayed' ? ', transfers relayed' : ''}`;
  const section = document.getElementById('front');
  section.hidden = false;
  const box = element('div', {class: 'plot', id: 'front-plot'}), status = element('output', {'aria-live': 'polite'});
  const steps = points.map(p => p.step_seconds * 1e9), peaks = points.map(p => p.peak / 2 ** 20);
  const range = values => {
    const low = Math.min(...values), high = Math.max(...values), margin = (high - low || high || 1) * .08;
    return [low - margin, high + margin];
  };
  const [left, right] = range(steps), [low, high] = range(peaks);
  const draw = room => {
    const width = Math.min(room, 800), height = 320, x0 = 76, y1 = height - 44;
    const x = nanos => x0 + (nanos - left) / (right - left) * (width - x0 - 12);
    const y = mebi => y1 - (mebi - low) / (high - low) * (y1 - 12);
    const memoryTicks = ticks(low, high, y1, 40);
    const dot = (p, i) => {
      const at = {cx: x(steps[i]), cy: y(peaks[i])};
      const show = event => {
        for (const point of box.querySelectorAll('.lit')) point.classList.remove('lit');
        event.currentTarget.querySelector('.point').classList.add('lit');
        status.textContent = says(p);
      };
      return shape('g', {tabindex: 0, role: 'img', 'aria-label': says(p), focus: show, pointerenter: show, click: show},
        shape('circle', {class: 'reach', r: 14, ...at}),
        p.is_chosen
          ? shape('rect', {class: 'point chosen', x: at.cx - 7, y: at.cy - 7, width: 14, height: 14, transform: `rotate(45 ${at.cx} ${at.cy})`})
          : shape('circle', {class: 'point', r: 6, ...at}));
    };
    const corners = points.map((p, i) => `${i === 0 ? '' : `${x(steps[i])},${y(peaks[i - 1])} `}${x(steps[i])},${y(peaks[i])}`);
    box.replaceChildren(shape('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'group',
      'aria-labelledby': 'front-title front-description'},
      shape('title', {id: 'front-title'}, 'Step time against memory of the fullest rank'),
      shape('desc', {id: 'front-description'}, `${plural(points.length, 'plan')}; the diamond is the chosen one.`),
      ...timeTicks(left, right, width - x0, 90).flatMap(([t, text]) => [
        shape('line', {class: 'grid', x1: x(t), x2: x(t), y1: 12, y2: y1}),
        shape('text', {x: x(t), y: y1 + 16, 'text-anchor': 'middle'}, text)]),
      ...memoryTicks.values.flatMap(t => [
        shape('line', {class: 'grid', x1: x0, x2: width - 12, y1: y(t), y2: y(t)}),
        shape('text', {x: x0 - 6, y: y(t) + 4, 'text-anchor': 'end'}, `${grouped(t, memoryTicks.decimals)} MiB`)]),
      shape('text', {x: (x0 + width) / 2, y: height - 8, 'text-anchor': 'middle'}, 'step time'),
      shape('polyline', {class: 'front-line', points: corners.join(' ')}), ...points.map(dot)));
  };
  section.append(
    element('p', {class: 'hint'}, 'Plans that no found plan beats in both; upwards is memory of the fullest rank, the diamond is the chosen one.'),
    box, status,
    asTable('Plans on the front', ['plan', 'step', 'fullest rank', 'stages', 'replicas', 'micro-batch', 'schedule', 'recomputed blocks'],
      points.map((p, i) => [`${i + 1}${p.is_chosen ? ', chosen' : ''}`, seconds(p.step_seconds), mib(p.peak), p.stages, p.replicas,
        p.micro_batch, p.schedule + (p.transfers === 'relayed' ? ', relayed' : ''), p.recomputed])));
  drawInto(box, draw);
}
front();
