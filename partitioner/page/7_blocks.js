// Every block with its costs, to be sorted and filtered.
function blocks() {
  const yes = value => value ? 'yes' : '';
  const columns = [
    {title: 'block', of: b => b.name, text: b => b.name},
    {title: 'stage', of: b => b.stage, text: b => b.stage < 0 ? 'replicated' : String(b.stage)},
    {title: 'state', of: b => b.state, text: b => b.state},
    {title: 'parameters', of: b => b.parameters, text: b => grouped(b.parameters), number: true},
    {title: 'trainable', of: b => b.trainable, text: b => yes(b.trainable)},
    {title: 'forward', of: b => b.forward, text: b => orNone(b.forward, time), number: true},
    {title: 'backward', of: b => b.backward, text: b => orNone(b.backward, time), number: true},
    {title: 'saved', of: b => b.saved, text: b => orNone(b.saved, mib), number: true},
    {title: 'recompute', of: b => b.recompute, text: b => yes(b.recompute)},
  ];
  const rows = data.blocks.map(block => ({block, node: element('tr', {}, ...columns.map((column, i) => i === 0
    ? element('th', {scope: 'row'}, column.text(block))
    : element('td', {class: column.number ? 'number' : ''}, column.text(block))))}));
  const body = element('tbody', {}, ...rows.map(row => row.node));
  const heads = columns.map(column => element('th', {scope: 'col', class: column.number ? 'number' : ''},
    element('button', {type: 'button', click: () => sort(column)}, column.title)));
  const sort = column => {
    const head = heads[columns.indexOf(column)];
    const falling = head.getAttribute('aria-sort') === 'ascending';
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', falling ? 'descending' : 'ascending');
    const compare = (a, b) => column.of(a.block) < column.of(b.block) ? -1 : column.of(a.block) > column.of(b.block) ? 1 : 0;
    rows.sort((a, b) => falling ? compare(b, a) : compare(a, b));
    body.append(...rows.map(row => row.node));
  };
  const count = element('span', {id: 'block-count', 'aria-live': 'polite'});
  const filter = words => {
    let shown = 0;
    for (const {block, node} of rows) {
      const text = columns.map(column => column.text(block)).join(' ').toLowerCase();
      node.hidden = !words.toLowerCase().split(/\s+/).every(word => text.includes(word));
      shown += node.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${plural(rows.length, 'block')}`;
  };
  const search = element('input', {type: 'search', id: 'block-filter', placeholder: 'name, stage, state',
    input: event => filter(event.target.value)});
  filter('');
  document.getElementById('blocks').append(
    element('p', {class: 'hint'}, 'Times of one micro-batch, without recomputation; saved: kept for the backward pass besides inputs. ' +
      'State: what training needs of a block, F forward, I gradients of inputs, W gradients of weights.'),
    element('p', {class: 'controls'}, element('label', {for: 'block-filter'}, 'Filter'), search, count),
    scrollBox('Blocks', element('table', {}, element('thead', {}, element('tr', {}, ...heads)), body), 'tall'));
}
blocks();
