// Headline: what is trained, on what, how long a step takes, which rank is fullest, and why this plan.
const report = data.report;
const rankName = r => `rank ${r}`;
const used = rank => rank.predicted.total / rank.device_memory;
const fullest = report.ranks.reduce((best, rank, r) => used(rank) > used(report.ranks[best]) ? r : best, 0);

function summary() {
  document.title = `${data.model} – plan report`;
  document.getElementById('model').append(data.model);
  document.getElementById('job').append(data.job);
  const figure = (id, name, value, ...lines) => element('div', {id},
    element('dt', {}, name), element('dd', {class: 'value'}, value), ...lines.map(line => element('dd', {}, line)));
  const measured = report.measured;
  const rank = report.ranks[fullest];
  const fits = rank.predicted.total <= rank.device_memory;
  const beside = (text, ratio) => measured ? [`measured ${text}, ${grouped(ratio, 2)} of predicted`] : [];
  document.getElementById('summary').append(
    element('dl', {class: 'figures'},
      figure('figure-step', 'Predicted step', seconds(report.step_seconds),
        ...(measured ? beside(seconds(measured.step_seconds), measured.step_seconds / report.step_seconds) : [])),
      figure('figure-fullest', `Fullest device: ${rankName(fullest)}, ${rank.device}`, mib(rank.predicted.total),
        element('span', {class: fits ? '' : 'bad'},
          `${fits ? '' : 'DOES NOT FIT: '}${percent(rank.predicted.total, rank.device_memory)} of ${mib(rank.device_memory)}`),
        ...(rank.measured ? beside(mib(rank.measured.total), rank.measured.total / rank.predicted.total) : [])),
      figure('figure-bubble', 'Ranks wait', percent(report.bubble, 1), 'of their time in a step',
        ...(measured ? [`measured ${percent(measured.bubble, 1)}`] : [])),
      figure('figure-balance', 'Balance, max ÷ mean', grouped(report.balance.time, 3),
        `time; memory ${grouped(report.balance.memory, 3)}; 1 is even`,
        ...(measured ? [`measured ${grouped(measured.balance.time, 3)} and ${grouped(measured.balance.memory, 3)}`] : []))),
    element('h2', {}, 'Why this plan'),
    element('ul', {id: 'reasons'}, ...data.reasons.map(reason => element('li', {}, reason))),
    ...data.notes.map(note => element('p', {class: 'note', role: 'note'}, note)));
  document.getElementById('footer').append(element('p', {}, `Costs: ${report.cost_table}. ${report.title}.`));
}
summary();
