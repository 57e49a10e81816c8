// Bars of the same training without this plan, beside it.
function alternatives() {
  if (report.alternatives.length === 0) return;
  const rank = report.ranks[fullest];
  const ways = [{name: 'This plan', how: 'memory of the fullest rank', memory: rank.predicted.total, device_memory: rank.device_memory,
    step_seconds: report.step_seconds, exposed_seconds: 0}, ...report.alternatives];
  const section = document.getElementById('alternatives');
  section.hidden = false;
  const mostMemory = Math.max(...ways.flatMap(way => [way.memory, way.device_memory]));
  const longest = Math.max(...ways.map(way => way.step_seconds));
  const part = (amount, kind, colour) => element('span', {class: `part ${kind}`, style: `--amount: ${amount}; --colour: ${colour}`});
  const bar = (name, text, style, bad, ...parts) => element('div', {class: 'bar'}, element('span', {}, name),
    element('div', {class: 'track', role: 'img', 'aria-label': `${name} ${text}`, style}, ...parts),
    element('span', {class: `amount ${bad ? 'bad' : ''}`}, text));
  const show = way => {
    const fits = way.memory <= way.device_memory;
    const step = seconds(way.step_seconds) + (way.other_batch ? `, of ${way.other_batch} samples` : '') + (way.exposed_seconds > 0 ? `, ${seconds(way.exposed_seconds)} of it communication alone` : '');
    return element('div', {class: 'way'}, element('h3', {}, way.name), element('p', {class: 'hint'}, way.how),
      bar('memory', `${mib(way.memory)} ${fits ? 'fits' : 'DOES NOT FIT'} ${mib(way.device_memory)}`,
        `--device: ${way.device_memory}; --scale: ${mostMemory}`, !fits,
        element('span', {class: 'room'}), part(way.memory, '', 'var(--activations)'), element('span', {class: 'limit'})),
      bar('step', step, `--scale: ${longest}`, false,
        part(way.step_seconds - way.exposed_seconds, '', '#56b4e9'), part(way.exposed_seconds, 'exposed', 'none')));
  };
  section.append(
    element('p', {class: 'hint'}, 'Memory of the fullest device against its size (upright line), and the step; hatched: communication that hides behind nothing.'),
    ...ways.map(show),
    asTable('The same training otherwise', ['way', 'memory', 'of device', 'fits', 'step', 'communication alone'],
      ways.map(way => [way.name, mib(way.memory), mib(way.device_memory), way.memory <= way.device_memory ? 'yes' : 'NO',
        seconds(way.step_seconds) + (way.other_batch ? ` (${way.other_batch} samples)` : ''), seconds(way.exposed_seconds)])));
}
alternatives();
