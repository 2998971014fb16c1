// The messages of both sides: a list with one row for each, and the details of the chosen one with what it became.

const LIST_MAX = 1500;
const ARROWS = { client: { up: '→', down: '←' }, model: { up: '→', down: '←' }, session: { up: '→', down: '←' } };
const DIRECTIONS = {
  client: { up: 'from the client', down: 'to the client' },
  model: { up: 'to the model', down: 'from the model' },
  session: { up: 'connection', down: 'connection' },
};

const element = (name, properties = {}, ...children) => {
  const created = Object.assign(document.createElement(name), properties);
  created.append(...children);
  return created;
};

const seconds = (timeS) => timeS.toFixed(3);

function duration(timeS) {
  if (timeS < 0.001) return `${Math.round(timeS * 1e6)} µs`;
  return timeS < 1 ? `${(timeS * 1000).toFixed(timeS < 0.01 ? 1 : 0)} ms` : `${timeS.toFixed(2)} s`;
}

export { duration };

export class Wires {
  constructor(list, detail, count) {
    Object.assign(this, { list, detail, count });
    this.filter = { words: '', audio: true, session: false };
    list.addEventListener('click', ({ target }) => {
      const button = target.closest('button');
      if (button) this.select(Number(button.dataset.id));
    });
    list.addEventListener('keydown', (event) => this.moveFocus(event));
    this.reset(null);
  }

  reset(trace) {
    this.trace = trace;
    this.lastId = 0;
    this.selected = null;
    this.items = new Map();
    this.list.replaceChildren();
    this.detail.hidden = true;
    this.count.textContent = '';
  }

  setFilter(filter) {
    Object.assign(this.filter, filter);
    const { trace, selected } = this;
    this.reset(trace);
    this.selected = selected;
    this.update(true);
    if (selected) {
      this.select(selected);
      this.items.get(selected)?.scrollIntoView({ block: 'nearest' });
    }
  }

  isShown(row) {
    const { words, audio, session } = this.filter;
    if (row.seconds && !audio) return false;
    if (row.side === 'session' && !session) return false;
    const text = `${row.name} ${row.words} ${DIRECTIONS[row.side][row.direction]}`;
    return !words || text.toLowerCase().includes(words.toLowerCase());
  }

  // Adds what is new. Follows the end of the list if it was in view.
  update(follow) {
    if (!this.trace) return;
    const { rows } = this.trace;
    const atEnd = follow ?? this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - 30;
    const added = [];
    let from = rows.length;
    while (from > 0 && rows[from - 1].id > this.lastId) from -= 1;
    for (const row of rows.slice(from)) if (this.isShown(row)) added.push(this.item(row));
    // Rows of sound may have grown.
    for (const row of rows.slice(Math.max(0, from - 2), from)) if (row.seconds && this.items.has(row.id)) this.fill(row);
    this.lastId = rows.at(-1)?.id ?? 0;
    if (added.length === 0) return;
    this.list.append(...added);
    while (this.list.childElementCount > LIST_MAX) {
      const oldest = this.list.firstElementChild;
      this.items.delete(Number(oldest.firstElementChild.dataset.id));
      oldest.remove();
    }
    if (atEnd) this.list.scrollTop = this.list.scrollHeight;
    const lost = this.trace.lostRecords ? `, ${this.trace.lostRecords} lost` : '';
    this.count.textContent = `${this.list.childElementCount} shown of ${this.lastId}${lost}`;
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
    return item;
  }

  fill(row) {
    const button = this.items.get(row.id).firstElementChild;
    const arrow = element('b', { textContent: `${ARROWS[row.side][row.direction]} ${row.name}` });
    button.lastElementChild.replaceChildren(arrow, row.words ? ` ${row.words}` : '');
    button.title = DIRECTIONS[row.side][row.direction];
  }

  moveFocus(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const current = event.target.closest('li');
    const next = current ? (step > 0 ? current.nextElementSibling : current.previousElementSibling) : this.list.lastElementChild;
    next?.firstElementChild.focus();
  }

  select(id) {
    const row = this.trace.find(id);
    for (const [other, item] of this.items) {
      item.classList.toggle('linked', Boolean(row) && (other === row.cause || row.effects.includes(other)));
      if (other === id) item.firstElementChild.setAttribute('aria-current', 'true');
      else item.firstElementChild.removeAttribute('aria-current');
    }
    this.selected = id;
    if (!row) return;
    this.show(row);
    this.onSelect?.(row);
  }

  show(row) {
    const link = (id) => {
      const other = this.trace.find(id);
      if (!other) return [];
      const button = element('button', { type: 'button', textContent: `${DIRECTIONS[other.side][other.direction]}: ${other.name}` });
      button.onclick = () => {
        this.select(id);
        this.items.get(id)?.scrollIntoView({ block: 'nearest' });
        this.detail.focus();
      };
      return [element('li', {}, button)];
    };
    const parts = [element('h3', { textContent: row.name }), element('p', { className: 'note', textContent: `${DIRECTIONS[row.side][row.direction]}, at ${seconds(row.timeS)} s` })];
    const list = (title, ids) => {
      const items = ids.flatMap(link);
      if (items.length) parts.push(element('strong', { textContent: title }), element('ul', {}, ...items));
    };
    if (row.isTimer) parts.push(element('p', { textContent: 'Sent because a timer expired.' }));
    if (row.cause) list(`Because of (${duration(row.sinceS)} before)`, [row.cause]);
    list('Became', row.effects);
    if (row.record.in && row.effects.length === 0) parts.push(element('p', { textContent: 'Nothing was sent because of it alone.' }));
    parts.push(element('pre', { textContent: contents(row) }));
    this.detail.replaceChildren(...parts);
    this.detail.hidden = false;
  }
}

// The message, or the record of another event.
function contents({ record, seconds: sound, words }) {
  if (sound) return words;
  try {
    return JSON.stringify(record.text === undefined ? record : JSON.parse(record.text), null, 2);
  } catch {
    return record.text;
  }
}
