// A recorded session: reads the lines of a trace, live or from a file, and keeps what the page shows of it. All its memory is
// bounded: the oldest messages and the oldest sound go first.

import { bytesOf, floatsOf, floatsOfInt16, int16Of } from './audio.js';
import { Conversation } from './conversation.js';
import { Hop, Sound } from './measures.js';
import { meaning } from './protocols.js';

const ROWS_MAX = 3000;
const ROWS_DROPPED = 500;
const LINES_MAX_BYTES = 96e6;
const MARKS_MAX = 2000;
const MODEL_CHUNKS_MAX = 600;
const REQUESTS_MAX = 64;
const SHORT_CHARS = 2000;
const MODEL_HZ = 24000;
const AUDIO_ROW_MAX_S = 2;

const MARK_OF = {
  'speech-start': ['speech', 'speech'],
  'speech-end': ['speech', ''],
  partial: ['transcript', ''],
  'partial-delta': ['transcript', ''],
  final: ['transcript', null],
  'speaking-start': ['speaking', 'speaking'],
  'speaking-end': ['speaking', ''],
  interrupt: ['speaking', 'interrupt'],
  'tool-start': ['tool', null],
  'tool-end': ['tool', ''],
  error: ['error', 'error'],
};

export class Trace {
  constructor() {
    this.lines = [];
    this.lineBytes = 0;
    this.droppedLines = 0;
    this.lostRecords = 0;
    this.header = null;
    this.rows = [];
    this.nextId = 1;
    this.marks = [];
    this.conversation = new Conversation();
    this.up = new Sound();
    this.down = new Sound();
    this.hops = new Map();
    this.queue = null;
    this.context = null;
    this.endS = 0;
    this.input = null;
    // The model's sound that the client has not been sent yet.
    this.modelSound = [];
    this.lanes = new Map();
    // The row of the request, by the id that its answers have.
    this.requests = new Map();
    this.inputHz = 16000;
    this.version = 0;
    this.isSpeaking = false;
    // The rows of sound, by direction, that further frames join.
    this.audioRows = {};
  }

  // Adds a line; throws if it is none of a trace.
  add(line) {
    const record = JSON.parse(line);
    this.keepLine(line);
    this.version += 1;
    if (!this.header) {
      if (record.trace !== 1 && record.trace !== 2) throw new Error('This file is not a trace of voxbridge.');
      this.header = record;
      this.inputHz = this.initialRate(record);
      return;
    }
    const timeS = record.ns / 1e9;
    this.endS = Math.max(this.endS, timeS);
    if (record.lost) this.lostRecords += record.lost;
    if (record.in) this.addInput(record, timeS);
    else if (record.out) this.addOutput(record, timeS);
  }

  keepLine(line) {
    this.lines.push(line);
    this.lineBytes += line.length;
    // The header stays, and the room comes in steps, because removing from the front of a long list is slow.
    if (this.lineBytes < LINES_MAX_BYTES) return;
    const dropped = this.lines.splice(1, Math.ceil(this.lines.length / 8));
    this.droppedLines += dropped.length;
    for (const { length } of dropped) this.lineBytes -= length;
  }

  // The session as a file. It says how much of its beginning is missing.
  text() {
    const [header, ...records] = this.lines;
    const lost = this.droppedLines ? [JSON.stringify({ ns: 0, lost: this.droppedLines })] : [];
    return [header, ...lost, ...records, ''].join('\n');
  }

  initialRate({ client, query }) {
    const parameters = new URLSearchParams(query);
    const given = Number(parameters.get('call_rate_in') ?? parameters.get('input_sample_rate') ?? parameters.get('sample_rate'));
    return given || { 'openai-realtime': 24000, vosk: 8000, twilio: 8000 }[client] || 16000;
  }

  addInput(record, timeS) {
    if (record.in === 'lane_closed') this.leaveQueue(record.lane);
    this.input = { timeS, row: null, sound: null, isTimer: record.in === 'timeout' };
    switch (record.in) {
      case 'client': this.addClientInput(record, timeS); break;
      case 'lane': this.addLaneInput(record, timeS); break;
      case 'lane_opened': {
        const lane = this.lane(record.lane);
        if (lane.dialledS !== undefined) this.hop('Dial the model', timeS - lane.dialledS);
        lane.connectedS = timeS;
        this.input.row = this.row(timeS, 'session', 'down', `connected #${record.lane}`, '', record);
        break;
      }
      case 'timeout': break;
      case 'tool_result':
        this.input.row = this.row(timeS, 'session', 'down', 'result of a tool', record.text ?? '', record);
        this.note({ kind: 'tool-end', key: `call ${record.words}`, text: record.text, hasFailed: Boolean(record.failure) }, timeS);
        break;
      default: {
        const why = [record.why, record.code, record.words].filter(Boolean).join(' ');
        this.input.row = this.row(timeS, 'session', 'down', record.in.replaceAll('_', ' ') + this.laneName(record), why, record);
      }
    }
  }

  addClientInput(record, timeS) {
    const message = this.parse(record.text);
    const event = message ? meaning(message) : {};
    const bytes = record.base64 ? bytesOf(record.base64) : event.audio && isSound(event.audio) ? bytesOf(event.audio) : null;
    if (bytes || record.bytes || event.kind === 'audio') {
      const samples = bytes ? floatsOfInt16(int16Of(bytes)) : new Float32Array((record.bytes ?? 0) / 2);
      const seconds = samples.length / this.inputHz;
      this.up.push(samples, this.inputHz, Math.max(this.up.endS, timeS - seconds));
      this.input.row = this.audioRow(timeS, 'client', 'up', seconds, record);
      return;
    }
    const rate = message?.input_sample_rate ?? message?.config?.sample_rate ?? message?.session?.audio?.input?.format?.rate;
    if (rate) this.inputHz = rate;
    this.input.row = this.row(timeS, 'client', 'up', nameOf(message, record), wordsOf(message), record);
    this.linkById(this.input.row, message, false);
    if (event.kind === 'text' && event.text) this.textS = timeS;
    if (event.kind === 'interrupt') this.interruptS = timeS;
    this.note(event, timeS);
  }

  addLaneInput(record, timeS) {
    const message = this.parse(record.text) ?? {};
    const lane = this.lane(record.lane);
    this.input.row = this.row(timeS, 'model', 'down', nameOf(message, record), wordsOf(message), record);
    if (message.type === 'session.created') {
      if (lane.connectedS !== undefined) this.hop('Set up the model', timeS - lane.connectedS);
      this.queue = null;
    }
    const isReply = (message.type ?? '').startsWith('response.');
    const isFirst = lane.askedS !== undefined;
    if (isReply && lane.request) this.link(this.input.row, lane.request, isFirst || message.type === 'response.done');
    if (isFirst && isReply) {
      this.hop('Model’s first reply', timeS - lane.askedS);
      lane.answeredS = lane.askedS;
      lane.askedS = undefined;
    }
    const tokens = message.metrics?.kv_cache_length;
    if (tokens !== undefined) this.context = tokens;
    if (message.position !== undefined) {
      this.queue = { lane: record.lane, position: message.position, length: message.queue_length ?? message.position };
      this.mark('rollover', timeS, `queue: ${message.position}`);
    }
    if (message.type === 'session.queue_done') this.queue = null;
    if (message.kind === 'audio' && isSound(message.audio)) {
      const samples = floatsOf(bytesOf(message.audio));
      this.modelSound.push(samples);
      if (this.modelSound.length > MODEL_CHUNKS_MAX) this.modelSound.shift();
      this.input.sound = samples;
    }
  }

  addOutput(record, timeS) {
    if (this.input && record.out !== 'observe') this.hop('Inside voxbridge', timeS - this.input.timeS);
    switch (record.out) {
      case 'client': this.addClientOutput(record, timeS); break;
      case 'lane': {
        const message = this.parse(record.text) ?? {};
        const row = this.row(timeS, 'model', 'up', nameOf(message, record), wordsOf(message), record);
        if (message.type === 'input.append') Object.assign(this.lane(record.lane), { askedS: timeS, request: row.id });
        break;
      }
      case 'open_lane':
        this.lane(record.lane).dialledS = timeS;
        this.row(timeS, 'session', 'up', `connect #${record.lane}`, record.mode ?? '', record);
        break;
      case 'close_lane':
        this.leaveQueue(record.lane);
        this.row(timeS, 'session', 'up', `close #${record.lane}`, '', record);
        break;
      case 'drop_audio':
        this.down.cutAt(timeS);
        this.modelSound = [];
        this.row(timeS, 'session', 'down', 'discard queued audio', `${record.bytes} bytes`, record);
        break;
      case 'call_tool': {
        const [call, server, tool] = record.words.split(' ');
        this.row(timeS, 'session', 'up', `call ${server}: ${tool}`, record.text ?? '', record);
        this.note({ kind: 'tool-start', key: `call ${call}`, text: tool, given: record.text }, timeS);
        break;
      }
      case 'observe':
        // Most protocols have no message for it.
        if (/^rolled ?over|^rollover/i.test(record.words)) this.mark('rollover', timeS, 'rollover');
        this.row(timeS, 'session', 'down', record.words, '', record);
        break;
      default:
        this.row(timeS, 'session', 'up', record.out.replaceAll('_', ' ') + this.laneName(record), '', record);
    }
  }

  addClientOutput(record, timeS) {
    const message = this.parse(record.text);
    const event = message ? meaning(message) : {};
    const bytes = record.bytes ?? (event.kind === 'audio' ? base64Bytes(event.audio) : 0);
    if (bytes) {
      const samples = this.takeModelSound(Math.floor(bytes / 2));
      this.down.push(samples, MODEL_HZ, Math.max(this.down.endS, timeS));
      this.audioRow(timeS, 'client', 'down', samples.length / MODEL_HZ, record);
      if (this.textS !== undefined) this.hop('Text to first sound', timeS - this.textS);
      this.textS = undefined;
      return;
    }
    const row = this.row(timeS, 'client', 'down', nameOf(message, record), wordsOf(message), record);
    this.linkById(row, message, event.kind === 'speaking-end');
    if (event.kind === 'speech-start') this.speechS = this.isSpeaking ? timeS : undefined;
    if (event.kind === 'final' && event.who !== 'model') {
      const answered = [...this.lanes.values()].map((lane) => lane.answeredS).filter((asked) => asked !== undefined);
      if (answered.length) this.hop('Question to transcript', timeS - Math.max(...answered));
    }
    if (event.kind === 'speaking-start') {
      this.isSpeaking = true;
      this.modelSound = this.input?.sound ? [this.input.sound] : [];
    }
    if (event.kind === 'speaking-end') {
      this.modelSound = [];
      if (event.cancelled) this.down.cutAt(timeS);
      if (this.interruptS !== undefined) this.hop('Interrupt to silence', timeS - this.interruptS);
      if (event.cancelled && this.speechS !== undefined) this.hop('Speech to silence', timeS - this.speechS);
      Object.assign(this, { isSpeaking: false, interruptS: undefined, speechS: undefined });
    }
    this.note(event, timeS);
  }

  // What a message means to somebody who listens.
  note(event, timeS) {
    const call = event.kind === 'tool-end' && this.conversation.openCall(event.key);
    if (event.kind === 'tool-end' && !call) return;
    if (call) this.hop('Call of a tool', timeS - call.startS);
    const known = event.kind && MARK_OF[event.kind];
    if (known) this.mark(known[0], timeS, known[1] ?? event.text ?? '', event);
    this.conversation.note(event, timeS);
  }

  mark(kind, timeS, text, event = {}) {
    this.marks.push({ kind, timeS, text, isEnd: (event.kind ?? '').endsWith('-end'), isSmall: (event.kind ?? '').startsWith('partial') });
    if (this.marks.length > MARKS_MAX) this.marks.splice(0, MARKS_MAX / 4);
  }

  hop(name, seconds) {
    if (!this.hops.has(name)) this.hops.set(name, new Hop());
    this.hops.get(name).add(Math.max(0, seconds));
  }

  lane(number) {
    if (!this.lanes.has(number)) {
      this.lanes.set(number, {});
      if (this.lanes.size > 64) this.lanes.delete(this.lanes.keys().next().value);
    }
    return this.lanes.get(number);
  }

  leaveQueue(lane) {
    if (this.queue?.lane === lane) this.queue = null;
  }

  laneName(record) {
    return record.lane === undefined ? '' : ` #${record.lane}`;
  }

  parse(text) {
    if (text === undefined) return null;
    try {
      const message = JSON.parse(text);
      return typeof message === 'object' && message ? message : {};
    } catch {
      return {};
    }
  }

  takeModelSound(count) {
    const samples = new Float32Array(count);
    let at = 0;
    while (at < count && this.modelSound.length) {
      const first = this.modelSound[0];
      const part = first.subarray(0, count - at);
      samples.set(part, at);
      at += part.length;
      if (part.length === first.length) this.modelSound.shift();
      else this.modelSound[0] = first.subarray(part.length);
    }
    return samples;
  }

  // Adds a message. An output became of the input before it.
  row(timeS, side, direction, name, words, record) {
    const cause = record.out && this.input && !this.input.isTimer ? this.input.row : null;
    const row = {
      id: this.nextId, timeS, side, direction, name, words, record: shortened(record), cause: cause?.id, effects: [], request: undefined, replies: [],
      isTimer: Boolean(record.out && this.input?.isTimer), sinceS: this.input ? timeS - this.input.timeS : 0,
    };
    this.nextId += 1;
    cause?.effects.push(row.id);
    this.rows.push(row);
    this.audioRows = {};
    if (this.rows.length > ROWS_MAX) this.rows.splice(0, ROWS_DROPPED);
    return row;
  }

  // Links a message to the request that it answers. The request's row names only the first and the last of its answers.
  link(row, request, isNamed) {
    row.request = request;
    if (isNamed) this.find(request)?.replies.push(row.id);
  }

  // The first message with an id is a request, or begins the answer to what caused it; later ones belong to the answer.
  linkById(row, message, isLast) {
    const id = message?.request_id ?? message?.response_id ?? message?.response?.id;
    if (id === undefined) return;
    if (this.requests.has(id)) {
      this.link(row, this.requests.get(id), isLast);
      return;
    }
    this.requests.set(id, row.cause ?? row.id);
    if (this.requests.size > REQUESTS_MAX) this.requests.delete(this.requests.keys().next().value);
  }

  // Adds sound. Successive frames share a row, because they would hide the rest. Another message ends the row, and so does a
  // frame of which something became.
  audioRow(timeS, side, direction, seconds, record) {
    const last = this.audioRows[direction];
    if (last && last.effects.length === 0 && last.seconds < AUDIO_ROW_MAX_S) {
      last.seconds += seconds;
      last.frames += 1;
      last.words = describeSound(last);
      return last;
    }
    const open = this.audioRows;
    const row = this.row(timeS, side, direction, 'audio', '', withoutSound(record));
    Object.assign(row, { seconds, frames: 1 });
    this.audioRows = { ...open, [direction]: row };
    row.words = describeSound(row);
    return row;
  }

  find(id) {
    const at = id - (this.rows[0]?.id ?? 0);
    return this.rows[at];
  }
}

const isSound = (text) => typeof text === 'string' && !text.startsWith('[');
const describeSound = ({ frames, seconds }) => `${seconds.toFixed(2)} s in ${frames} ${frames === 1 ? 'frame' : 'frames'}`;
// A record for its row, without the long texts: thousands of rows must not keep minutes of sound.
function shortened(record) {
  if ((record.text ?? '').length < SHORT_CHARS) return record;
  const text = record.text.replace(/"([^"\\]{600,})"/g, (_, long) => `"${long.slice(0, 120)}… (${long.length} characters)"`);
  return { ...record, text };
}

const withoutSound = ({ base64, text, ...rest }) => rest;

// Bytes of a base64 text, which a trace may have replaced by its length: "[base64 1234== digest]".
function base64Bytes(text = '') {
  const replaced = /^\[base64 (\d+)(=*)/.exec(text);
  const [length, padding] = replaced ? [Number(replaced[1]), replaced[2].length] : [text.length, /=*$/.exec(text)[0].length];
  return Math.floor((length / 4) * 3) - padding;
}

function nameOf(message, record) {
  if (!message) return record.code === undefined ? 'message' : `close ${record.code}`;
  const type = message.type ?? Object.keys(message)[0] ?? 'message';
  return type + (message.kind ? ` ${message.kind}` : '') + (record.lane === undefined ? '' : ` #${record.lane}`);
}

// Tells where a picture went.
function pictureOf(message) {
  const picture = message.image ?? message.input?.video_frames?.[0] ?? message.item?.content?.[0]?.image_url;
  return typeof picture === 'string' ? `with a picture of ${Math.ceil(base64Bytes(picture) / 1000)} kB` : undefined;
}

// The words in a message, for its row.
function wordsOf(message) {
  if (!message) return '';
  const { text, transcript, delta, partial, reason, position } = message;
  const found = [text, transcript, partial, message.channel?.alternatives?.[0]?.transcript, message.error?.message, message.message, reason, isSound(delta) && delta.length < 400 ? delta : undefined];
  const words = found.find((value) => typeof value === 'string' && value !== '') ?? pictureOf(message);
  return words ?? (position === undefined ? '' : `position ${position}`);
}
