// The messages of both sides: a list with one row for each, and the details of the chosen one with what it became.

import { DIRECTIONS, MessageList, element, seconds } from './message_list.js';

function duration(timeS) {
  if (timeS < 0.001) return `${Math.round(timeS * 1e6)} µs`;
  return timeS < 1 ? `${(timeS * 1000).toFixed(timeS < 0.01 ? 1 : 0)} ms` : `${timeS.toFixed(2)} s`;
}

export { duration };

export class Wires {
  constructor(list, detail, count) {
    Object.assign(this, { detail, count });
    this.filter = { words: '', audio: true, session: false };
    this.list = new MessageList(list, (id) => this.select(id));
    this.reset(null);
  }

  reset(trace) {
    this.trace = trace;
    this.lastId = 0;
    this.selected = null;
    this.list.reset();
    this.detail.hidden = true;
    this.count.textContent = '';
  }

  setFilter(filter) {
    Object.assign(this.filter, filter);
    const { trace, selected } = this;
    this.reset(trace);
    this.update();
    if (!selected) return;
    this.select(selected);
    this.list.reveal(selected);
  }

  isShown(row) {
    const { words, audio, session } = this.filter;
    if (row.seconds && !audio) return false;
    if (row.side === 'session' && !session) return false;
    const text = `${row.name} ${row.words} ${DIRECTIONS[row.side][row.direction]}`;
    return !words || text.toLowerCase().includes(words.toLowerCase());
  }

  // Adds what is new.
  update() {
    if (!this.trace) return;
    const { rows } = this.trace;
    let from = rows.length;
    while (from > 0 && rows[from - 1].id > this.lastId) from -= 1;
    const added = rows.slice(from).filter((row) => this.isShown(row));
    // Rows of sound may have grown.
    for (const row of rows.slice(Math.max(0, from - 2), from)) if (row.seconds) this.list.fill(row);
    this.lastId = rows.at(-1)?.id ?? 0;
    if (added.length === 0) return;
    this.list.update(added, rows[0].id);
    const lost = this.trace.lostRecords ? `, ${this.trace.lostRecords} lost` : '';
    this.count.textContent = `${this.list.rows.length} shown of ${this.lastId}${lost}`;
  }

  select(id) {
    const row = this.trace.find(id);
    this.list.select(row);
    this.selected = id;
    if (!row) return;
    this.show(row);
    this.onSelect?.(row);
  }

  show(row) {
    const link = (id) => {
      const other = id && this.trace.find(id);
      if (!other) return [];
      const button = element('button', { type: 'button', textContent: `${DIRECTIONS[other.side][other.direction]}: ${other.name}` });
      button.onclick = () => {
        this.select(id);
        this.list.reveal(id);
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
    if (row.request !== row.cause) list('Answers', [row.request]);
    list('Became', row.effects);
    list('Answered by', row.replies);
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
