// One session of this page: a client's WebSocket, spoken as by any client, and the WebSocket on which the server shows what it
// received and sent.

import { bytesOf, int16Of } from './audio.js';
import { CLIENTS, meaning } from './protocols.js';

const OUTPUT_HZ = 24000;
// Time for the last messages of both sides, after the client's connection has closed.
const LAST_MESSAGES_MS = 5000;
// Where the server's paths begin: the page is at PREFIX/playground.
const BASE = new URL('.', location.href);

function socketUrl(path, query) {
  const url = new URL(path.replace(/^\//, ''), BASE);
  url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  return url;
}

// The key travels in a subprotocol, so that it is never part of a URL.
const subprotocols = (key, more = []) => ['voxbridge', ...(key ? [`voxbridge.key.${key}`] : []), ...more];

const randomName = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => byte.toString(16).padStart(2, '0')).join('');

const opened = (socket, what) => new Promise((resolve, reject) => {
  socket.onopen = resolve;
  socket.onerror = () => reject(new Error(`The server does not accept ${what}.`));
});

export class Session {
  // `on` has the functions line(text), event(meaning), audio(samples, rateHz) and closed(reason).
  constructor(settings, on) {
    this.settings = settings;
    this.client = CLIENTS[settings.protocol.name];
    this.on = on;
    this.pending = [];
  }

  async open() {
    const { key, protocol } = this.settings;
    const name = randomName();
    this.wires = new WebSocket(socketUrl('playground/wires', { session: name }), subprotocols(key));
    this.wires.onmessage = ({ data }) => this.on.line(data);
    await opened(this.wires, 'a page that watches a session');
    const url = socketUrl(protocol.path, this.client.query(this.settings));
    this.socket = new WebSocket(url, subprotocols(key, [`voxbridge.watch.${name}`]));
    this.socket.binaryType = 'arraybuffer';
    this.socket.onmessage = ({ data }) => this.receive(data);
    this.socket.onclose = ({ code, reason }) => this.end(code === 1000 || code === 1005 ? '' : `${reason || 'The connection was closed'} (${code})`);
    try {
      await opened(this.socket, 'the session');
    } catch (error) {
      this.wires.close();
      throw error;
    }
    this.send(this.client.open(this.settings));
  }

  // The session is over when the server has shown its last messages as well.
  end(reason) {
    const over = () => this.on.closed(reason);
    if (this.wires.readyState === WebSocket.CLOSED) over();
    this.wires.onclose = over;
    setTimeout(() => this.wires.close(), LAST_MESSAGES_MS);
  }

  send(messages) {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    for (const message of messages) this.socket.send(message);
  }

  sendAudio(samples) {
    const size = this.client.frameSamples ?? 0;
    this.pending.push(...samples);
    if (this.pending.length < size) return;
    this.send([this.client.audio(Int16Array.from(this.pending))]);
    this.pending = [];
  }

  sendPicture(image) {
    this.send(this.client.picture(image));
  }

  get canHear() { return Boolean(this.client.audio); }
  get canSpeak() { return Boolean(this.client.speak); }

  speak(text) {
    this.send(this.client.speak(text, this.settings));
  }

  interrupt() {
    if (this.client.interrupt) this.send(this.client.interrupt());
  }

  close() {
    if (this.client.close) this.send(this.client.close());
    // A server that does not close by itself is left after a moment.
    else this.socket.close(1000);
    setTimeout(() => this.socket.close(1000), 1500);
  }

  receive(data) {
    if (data instanceof ArrayBuffer) {
      this.hear(new Uint8Array(data));
      return;
    }
    const event = meaning(JSON.parse(data));
    if (event.kind === 'audio') this.hear(bytesOf(event.audio));
    else if (event.kind) this.on.event(event);
  }

  hear(bytes) {
    this.on.audio(int16Of(bytes), OUTPUT_HZ);
  }
}
