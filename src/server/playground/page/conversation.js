// The conversation: what was said, in the order in which it began, and the list that shows it. A transcript comes after its
// speech, often later than the answer, so it fills in the entry that the speech began.

import { element } from './message_list.js';

const ENTRIES_MAX = 300;
const AT_END_PX = 30;

// Entries are { id, who, key, text, startS, endS, isOpen }, those of tools also { given, result, hasFailed }, and never change: a changed one takes the place of the old one.
// `key` is the protocol's name of an utterance or answer, if it has one; `isOpen` until its last words.
export class Conversation {
  constructor() {
    this.entries = [];
    this.nextId = 1;
  }

  // Takes what a message means (see `meaning` in protocols.js).
  note({ kind, text, who, key, given, hasFailed }, timeS) {
    switch (kind) {
      case 'speech-start': this.begin('user', key, timeS); break;
      case 'speech-end': this.endSpeech(key, timeS); break;
      case 'committed': if (this.find('user', key) < 0) this.begin('user', key, timeS, timeS); break;
      case 'partial': if (text) this.say(who, key, text, timeS, true); break;
      case 'partial-delta': if (text) this.say(who, key, this.wordsOf(who, key) + text, timeS, true); break;
      case 'final': this.say(who, key, text, timeS, false); break;
      case 'tool-start': this.add({ who: 'tool', key, text, given, startS: timeS, isOpen: true }); break;
      case 'tool-end': this.endCall(key, { result: text, hasFailed, endS: timeS, isOpen: false }); break;
      case 'text': if (text) this.add({ who: who ?? 'text', text, startS: timeS, isOpen: false }); break;
      case 'error':
        this.giveUp();
        this.add({ who: 'error', text, startS: timeS, isOpen: false });
        break;
      default:
    }
  }

  add(entry) {
    this.entries.push({ id: this.nextId, ...entry });
    this.nextId += 1;
    if (this.entries.length > ENTRIES_MAX) this.entries.shift();
  }

  change(at, changes) {
    this.entries[at] = { ...this.entries[at], ...changes };
  }

  begin(who, key, startS, endS) {
    this.add({ who, key, text: '', startS, endS, isOpen: true });
  }

  endSpeech(key, endS) {
    const at = this.entries.findLastIndex((entry) => entry.who === 'user' && entry.endS === undefined && (key === undefined || entry.key === key));
    if (at >= 0) this.change(at, { endS });
  }

  // A result without a call is of none of the page's: devices answer other requests, too.
  endCall(key, end) {
    const at = this.entries.findLastIndex((entry) => entry.who === 'tool' && entry.isOpen && entry.key === key);
    if (at >= 0) this.change(at, end);
  }

  // The call of a tool with this key that has not ended.
  openCall(key) {
    return this.entries.findLast((entry) => entry.who === 'tool' && entry.isOpen && entry.key === key);
  }

  // The entry for words with this key: the one that has it, or the oldest open one that has none; -1 if there is none.
  find(who, key) {
    const isOpen = (entry) => entry.who === who && entry.isOpen;
    const named = key === undefined ? -1 : this.entries.findLastIndex((entry) => entry.who === who && entry.key === key);
    return named >= 0 ? named : this.entries.findIndex((entry) => isOpen(entry) && entry.key === undefined);
  }

  wordsOf(who, key) {
    return this.entries[this.find(who, key)]?.text ?? '';
  }

  say(who, key, text, timeS, isOpen) {
    const at = this.find(who, key);
    if (at >= 0 && text) this.change(at, { key, text, isOpen });
    else if (at >= 0 && !isOpen) this.entries.splice(at, 1);
    else if (text) this.add({ who, key, text, startS: timeS, isOpen });
  }

  // After an error, the oldest speech that waits for its transcript may never get one; the next transcript is not its own.
  giveUp() {
    const at = this.entries.findIndex((entry) => entry.who === 'user' && entry.isOpen && entry.endS !== undefined);
    if (at >= 0) this.change(at, { isOpen: false });
  }
}

// What an entry says: its words, or how long the speech was that has none yet.
export function wordsOf({ text, startS, endS }) {
  if (text) return text;
  return endS > startS ? `${(endS - startS).toFixed(1)} s of speech` : '…';
}

const RESULT_MAX_CHARS = 400;

// The parts of a call: name and arguments, then its result and how long it took.
function partsOfCall({ text, given, result, hasFailed, startS, endS, isOpen }) {
  const call = element('code', { textContent: `${text ?? 'tool'} ${given ?? ''}`.trim() });
  if (isOpen) return [call];
  const shown = (result ?? '').length > RESULT_MAX_CHARS ? `${result.slice(0, RESULT_MAX_CHARS)}…` : result ?? '';
  const words = element('span', { textContent: shown, className: hasFailed ? 'failed' : '' });
  return [call, words, element('small', { textContent: `${(endS - startS).toFixed(2)} s` })];
}

// Changes only the elements of entries that changed, so that a screen reader reads only those.
export class ConversationList {
  constructor(list) {
    this.list = list;
    this.names = {};
    this.reset();
  }

  reset() {
    this.shown = new Map();
    this.list.replaceChildren();
  }

  show(entries) {
    const { list, shown } = this;
    const wasAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - AT_END_PX;
    const kept = new Set(entries.map(({ id }) => id));
    for (const [id, { item }] of shown) {
      if (kept.has(id)) continue;
      item.remove();
      shown.delete(id);
    }
    for (const entry of entries) {
      const known = shown.get(entry.id);
      if (known?.entry === entry) continue;
      const item = known?.item ?? element('p');
      this.fill(item, entry);
      // New entries are the last ones.
      if (!known) list.append(item);
      shown.set(entry.id, { entry, item });
    }
    if (wasAtEnd) list.scrollTop = list.scrollHeight;
  }

  fill(item, entry) {
    const side = entry.who === 'text' ? 'model' : entry.who === 'typed' ? 'user' : entry.who;
    item.className = `${side}${entry.isOpen ? ' partial' : ''}`;
    // A screen reader reads the whole text when it has come.
    item.ariaHidden = entry.isOpen ? 'true' : null;
    const parts = entry.who === 'tool' ? partsOfCall(entry) : [wordsOf(entry)];
    item.replaceChildren(element('b', { textContent: this.names[entry.who] ?? entry.who }), ...parts);
  }
}
