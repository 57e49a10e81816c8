// Stacked bars of what every rank holds, predicted beside measured, against its device.
function memory() {
  const totals = report.ranks.flatMap(rank => [rank.predicted.total, rank.measured?.total ?? 0]);
  const devices = report.ranks.map(rank => rank.device_memory);
  const widest = Math.max(...totals);
  const section = document.getElementById('memory');
  const scaleTo = bytes => section.style.setProperty('--scale', bytes);
  const all = Math.max(widest, ...devices);
  scaleTo(all);

  const bar = (name, amounts, total, device) => {
    const parts = data.memory_lines.filter(({key}) => amounts[key] > 0);
    const spoken = parts.map(({key, name}) => `${name} ${mib(amounts[key])}`).join(', ');
    return element('div', {class: 'bar', 'data-total': total}, element('span', {}, name),
      element('div', {class: 'track', role: 'img', style: `--device: ${device}`,
        'aria-label': `${name} ${mib(total)} of ${mib(device)}: ${spoken}`},
        element('span', {class: 'room'}),
        ...parts.map(({key, name}) => element('span', {class: 'part', 'data-bytes': amounts[key],
          style: `--amount: ${amounts[key]}; --colour: var(--${key})`, title: `${name}: ${mib(amounts[key])}`})),
        element('span', {class: 'limit'})),
      element('span', {class: `amount ${total > device ? 'bad' : ''}`},
        `${mib(total)}, ${percent(total, device)} of ${mib(device)}${total > device ? ': DOES NOT FIT' : ''}`));
  };
  const rankBars = (rank, r) => element('div', {class: 'rank'},
    element('h3', {}, `${rankName(r)}, ${rank.device}, ${rank.stages.length === 1 ? 'stage' : 'stages'} ` +
      `${rank.stages.join(', ')}, ${plural(rank.blocks.length, 'block')}`),
    bar('predicted', rank.predicted.memory, rank.predicted.total, rank.device_memory),
    ...(rank.measured ? [bar('measured', rank.measured.memory, rank.measured.total, rank.device_memory)] : []));

  const lines = data.memory_lines.filter(({key}) => report.ranks.some(rank =>
    rank.predicted.memory[key] > 0 || rank.measured?.memory[key] > 0));
  const zoom = element('input', {type: 'checkbox', id: 'memory-zoom',
    change: event => scaleTo(event.target.checked ? widest : all)});
  const measured = report.ranks.some(rank => rank.measured);
  const head = ['MiB', ...report.ranks.flatMap((rank, r) => measured ? [`${rankName(r)} predicted`, 'measured'] : [rankName(r)])];
  const amount = bytes => bytes == null ? '–' : grouped(bytes / 2 ** 20, 1);
  const row = (name, predicted, seen) => [name, ...report.ranks.flatMap(rank =>
    measured ? [amount(predicted(rank)), amount(seen(rank))] : [amount(predicted(rank))])];
  const rows = lines.map(({key, name}) => row(name, rank => rank.predicted.memory[key], rank => rank.measured?.memory[key]));
  rows.push(row('total', rank => rank.predicted.total, rank => rank.measured?.total));
  rows.push(row('device', rank => rank.device_memory, () => null));

  section.append(
    element('p', {class: 'hint'}, 'At the moment of each rank’s peak. The upright line is the size of the device.',
      measured ? ' A run does not measure recompute, comm buffers and slack apart.' : ''),
    element('p', {class: 'controls'}, element('label', {}, zoom, ' stretch to the fullest rank')),
    legend(lines.map(({key, name}) => [swatch(key), name])),
    ...report.ranks.map(rankBars), asTable('Memory of every rank at its peak', head, rows));
}
memory();
