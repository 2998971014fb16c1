// One session of this page: a client's connection, spoken as by any client, and the WebSocket on which the server shows what it
// received and sent.

import { bytesOf, int16Of } from './audio.js';
import { CallConnection, SocketConnection, opened, subprotocols, urlOf } from './connections.js';
import { CLIENTS, meaning } from './protocols.js';

const OUTPUT_HZ = 24000;
// Time for the last messages of both sides, after the client's connection has closed.
const LAST_MESSAGES_MS = 5000;

const randomName = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => byte.toString(16).padStart(2, '0')).join('');

export class Session {
  // `on` has the functions line(text), event(meaning), audio(samples, rateHz) and closed(reason).
  constructor(settings, on) {
    this.settings = settings;
    this.client = CLIENTS[settings.protocol.name];
    this.on = on;
    this.pending = [];
  }

  async open() {
    const { key, protocol, isCall } = this.settings;
    const name = randomName();
    this.wires = new WebSocket(urlOf('playground/wires', { session: name }, 'ws'), subprotocols(key));
    this.wires.onmessage = ({ data }) => this.on.line(data);
    await opened(this.wires, 'a page that watches a session');
    const Connection = isCall ? CallConnection : SocketConnection;
    this.connection = new Connection({ path: protocol.path, query: this.client.query(this.settings), key, name }, {
      message: (data) => this.receive(data),
      closed: (reason) => this.end(reason),
    });
    try {
      await this.connection.open();
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
    for (const message of messages) this.connection.send(message);
  }

  // Sends this track as the microphone of a call.
  sendTrack(track) {
    return this.connection.sendTrack(track);
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
    if (this.client.interrupt) this.send(this.client.interrupt(this.settings));
  }

  close() {
    if (this.client.close) this.send(this.client.close());
    // A server that does not close by itself is left after a moment.
    else this.connection.close();
    setTimeout(() => this.connection.close(), 1500);
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
