// The list of messages, with one row for each. Only the rows in view and near it are elements, because every element costs time
// in each frame. All rows have the same height, so that margins take the place of the others.

const ARROWS = { up: '→', down: '←' };
export const DIRECTIONS = {
  client: { up: 'from the client', down: 'to the client' },
  model: { up: 'to the model', down: 'from the model' },
  session: { up: 'connection', down: 'connection' },
};
// Rows before and after the view that are elements: the arrow keys reach them, and they are there when they come into view.
const NEAR_ROWS = 20;
const AT_END_PX = 30;

export const seconds = (timeS) => timeS.toFixed(3);

export const element = (name, properties = {}, ...children) => {
  const created = Object.assign(document.createElement(name), properties);
  created.append(...children);
  return created;
};

export class MessageList {
  // `onSelect(id)` is called when somebody chooses a row.
  constructor(list, onSelect) {
    this.list = list;
    list.addEventListener('scroll', () => this.render());
    list.addEventListener('keydown', (event) => this.moveFocus(event));
    list.addEventListener('click', ({ target }) => {
      const button = target.closest('button');
      if (button) onSelect(Number(button.dataset.id));
    });
    this.reset();
  }

  reset() {
    this.rows = [];
    this.items = new Map();
    this.selected = null;
    this.list.replaceChildren();
  }

  get isAtEnd() {
    return this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - AT_END_PX;
  }

  // Adds rows and forgets those before `oldestId`. Follows the end if it was in view.
  update(added, oldestId) {
    const atEnd = this.isAtEnd;
    const dropped = this.rows.findIndex(({ id }) => id >= oldestId);
    if (dropped > 0) this.rows.splice(0, dropped);
    this.rows.push(...added);
    this.render();
    if (atEnd) this.list.scrollTop = this.list.scrollHeight;
    else if (dropped > 0) this.list.scrollTop -= dropped * this.rowHeight;
    this.render();
  }

  get rowHeight() {
    return this.items.values().next().value?.getBoundingClientRect().height || 24;
  }

  // Makes elements for the rows in view and near it.
  render() {
    const { list, rows, items, rowHeight } = this;
    const from = Math.max(0, Math.min(Math.floor(list.scrollTop / rowHeight), rows.length) - NEAR_ROWS);
    const to = Math.min(rows.length, Math.ceil((list.scrollTop + list.clientHeight) / rowHeight) + NEAR_ROWS);
    const near = rows.slice(from, to);
    const isSame = near.length === items.size && near.every(({ id }) => items.has(id));
    if (!isSame) this.show(near);
    const [first, last] = [list.firstElementChild, list.lastElementChild];
    if (!first) return;
    first.style.marginTop = `${from * rowHeight}px`;
    last.style.marginBottom = `${(rows.length - to) * rowHeight}px`;
  }

  show(near) {
    const { list, items } = this;
    for (const end of [list.firstElementChild, list.lastElementChild]) end?.removeAttribute('style');
    const kept = new Set(near.map(({ id }) => id));
    for (const [id, item] of items) {
      if (kept.has(id)) continue;
      // The keyboard stays in the list.
      if (item.contains(document.activeElement)) list.focus({ preventScroll: true });
      item.remove();
      items.delete(id);
    }
    let next = list.firstElementChild;
    for (const row of near) {
      const item = items.get(row.id);
      if (item) next = item.nextElementSibling;
      else list.insertBefore(this.item(row), next);
    }
  }

  item(row) {
    const what = element('span', { className: 'what' });
    const button = element('button', { type: 'button' }, element('time', { textContent: seconds(row.timeS) }), what);
    button.dataset.id = row.id;
    // The list is one stop of the Tab key; arrow keys move within it.
    button.tabIndex = -1;
    const item = element('li', { className: `${row.side} ${row.direction}` }, button);
    this.items.set(row.id, item);
    this.fill(row);
    this.mark(row.id, item);
    return item;
  }

  // Shows what a row has become.
  fill(row) {
    const button = this.items.get(row.id)?.firstElementChild;
    if (!button) return;
    const arrow = element('b', { textContent: `${ARROWS[row.direction]} ${row.name}` });
    button.lastElementChild.replaceChildren(arrow, row.words ? ` ${row.words}` : '');
    button.title = DIRECTIONS[row.side][row.direction];
  }

  // Marks the chosen row, and the rows that it became, came from, answers or is answered by.
  select(row) {
    this.selected = row ?? null;
    for (const [id, item] of this.items) this.mark(id, item);
  }

  mark(id, item) {
    const { selected } = this;
    item.classList.toggle('linked', Boolean(selected) && [selected.cause, selected.request, ...selected.effects, ...selected.replies].includes(id));
    if (id === selected?.id) item.firstElementChild.setAttribute('aria-current', 'true');
    else item.firstElementChild.removeAttribute('aria-current');
  }

  // Brings a row into view.
  reveal(id) {
    const at = this.rows.findIndex((row) => row.id === id);
    if (at < 0) return;
    const top = at * this.rowHeight;
    const { scrollTop, clientHeight } = this.list;
    if (top < scrollTop || top + this.rowHeight > scrollTop + clientHeight) this.list.scrollTop = top - clientHeight / 2;
    this.render();
  }

  moveFocus(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const current = event.target.closest('li');
    const next = current ? (step > 0 ? current.nextElementSibling : current.previousElementSibling) : this.list.lastElementChild;
    next?.firstElementChild.focus();
    // The view may have moved: the next key needs the next row.
    this.render();
  }
}
