// Transcribes and speaks with Deepgram's public JavaScript library:
// node deepgram_client.cjs PACKAGE CODE RECORDING.wav [browser]
//
// The library is the package `deepgram-VERSION` ($NODE_PATH), and the code makes its client. With `browser`, the library uses the browser's WebSocket, which
// cannot send headers, so the key goes into the subprotocols. Prints the received events as JSON.
'use strict';

const fs = require('node:fs');

const { evaluate } = require('./readme_code.cjs');

const [packageName, code, recording, where] = process.argv.slice(2);
// Versions 3 and 4 mix up the order of the audio that the own WebSocket of Node 22 and later delivers as blobs.
delete globalThis.WebSocket;
if (where === 'browser') {
  globalThis.WebSocket = require('ws').WebSocket;
}
const library = require(packageName);

const PATIENCE_MS = 90_000;
const RATE = 16_000;
const LISTEN = {
  model: 'nova-3',
  encoding: 'linear16',
  sample_rate: RATE,
  interim_results: true,
  vad_events: true,
  utterance_end_ms: 1000,
  endpointing: 300,
};
const SPEAK = { model: 'aura-2-thalia-en', encoding: 'linear16', sample_rate: RATE };
const TEXTS = [
  ['The train to London ', 'leaves at half past nine.'],
  ['She opened the window and looked out over the garden.'],
];
const LONG = 'This sentence is not spoken to its end, and neither are those after it. '.repeat(8);
const CLOSED = { type: 'closed' };

// Versions 3 and 4 use an event emitter.
class Version3 {
  constructor(put) {
    this.put = put;
    this.client = evaluate(code, library);
  }

  open(wire, events) {
    this.wire = wire;
    for (const event of Object.values(events)) {
      wire.on(event, (came) => {
        if (event === events.Close) this.put({ ...CLOSED, code: came.code });
        else if (event === events.Error) this.put({ type: 'Error', description: String(came?.message ?? came) });
        else if (event !== events.Open) this.put(came);
      });
    }
    return new Promise((resolve) => wire.on(events.Open, resolve));
  }

  listen() {
    return this.open(this.client.listen.live(LISTEN), library.LiveTranscriptionEvents);
  }

  speak() {
    return this.open(this.client.speak.live(SPEAK), library.LiveTTSEvents);
  }

  send(audio) {
    // Both WebSockets accept an ArrayBuffer.
    this.wire.send(audio.buffer.slice(audio.byteOffset, audio.byteOffset + audio.length));
  }

  keepAlive() {
    this.wire.keepAlive();
  }

  finalize() {
    this.wire.finalize();
  }

  close() {
    this.wire.requestClose();
  }

  text(text) {
    this.wire.sendText(text);
  }

  flush() {
    this.wire.flush();
  }

  clear() {
    this.wire.clear();
  }
}

// Version 5 and later use a socket with typed messages.
class Version5 {
  constructor(put) {
    this.put = put;
    this.client = evaluate(code, library);
  }

  async open(connecting) {
    this.wire = await connecting;
    this.wire.on('message', (came) => this.put(came));
    this.wire.on('close', (event) => this.put({ ...CLOSED, code: event.code }));
    this.wire.on('error', (error) => this.put({ type: 'Error', description: error.message }));
    this.wire.connect();
    await this.wire.waitForOpen();
  }

  listen() {
    return this.open(this.client.listen.v1.connect({ ...LISTEN, reconnectAttempts: 0 }));
  }

  speak() {
    return this.open(this.client.speak.v1.connect({ ...SPEAK, reconnectAttempts: 0 }));
  }

  send(audio) {
    this.wire.sendMedia(audio);
  }

  keepAlive() {
    this.wire.sendKeepAlive({ type: 'KeepAlive' });
  }

  finalize() {
    this.wire.sendFinalize({ type: 'Finalize' });
  }

  close() {
    if (this.wire.sendCloseStream) this.wire.sendCloseStream({ type: 'CloseStream' });
    else this.wire.sendClose({ type: 'Close' });
  }

  text(text) {
    this.wire.sendText({ type: 'Speak', text });
  }

  flush() {
    this.wire.sendFlush({ type: 'Flush' });
  }

  clear() {
    this.wire.sendClear({ type: 'Clear' });
  }
}

class Client {
  constructor() {
    this.came = [];
    this.wake = () => {};
    this.library = new (/^deepgram-[34]\./.test(packageName) ? Version3 : Version5)((came) => {
      this.came.push(came);
      this.wake();
    });
  }

  async next() {
    while (this.came.length === 0) {
      await new Promise((resolve) => (this.wake = resolve));
    }
    const came = await bytes(this.came.shift());
    if (['Error', 'Warning'].includes(came.type)) throw new Error(JSON.stringify(came));
    return came;
  }

  // Waits for the first item that matches; returns all items up to it.
  async until(so) {
    const seen = [];
    while (seen.length === 0 || !so(seen.at(-1))) seen.push(await this.next());
    return seen;
  }

  async listen(audio, spoken) {
    const { library } = this;
    await library.listen();
    const began = performance.now();
    const paced = Buffer.concat([audio, Buffer.alloc(RATE * 4)]);
    for (let at = 0; at < paced.length; at += 640) {
      await sleep(began + at / 32 - performance.now());
      library.send(paced.subarray(at, at + 640));
    }
    const live = await this.until((came) => came.type === 'UtteranceEnd');
    library.keepAlive();
    // Silence does not end this stream.
    library.send(audio);
    library.finalize();
    const finalized = await this.until((came) => came.from_finalize);
    for (const piece of spoken) library.send(Buffer.concat([piece, Buffer.alloc(RATE * 2)]));
    library.close();
    const last = await this.until((came) => came.type === CLOSED.type);
    return {
      live: { kinds: [...new Set(live.map((came) => came.type))], text: said(live), speech_final: finals(live).at(-1).speech_final, interim: interim(live) },
      finalized: said(finalized),
      spoken: finals(last).map((came) => came.channel.alternatives[0].transcript),
      last: last.filter((came) => came.type !== 'Results'),
    };
  }

  async speak() {
    const { library } = this;
    await library.speak();
    const metadata = await this.next();
    if (metadata.type !== 'Metadata' || !metadata.request_id) throw new Error(JSON.stringify(metadata));
    for (const pieces of TEXTS) {
      pieces.forEach((piece) => library.text(piece));
      library.flush();
    }
    const spoken = [];
    for (let number = 0; number < TEXTS.length; number += 1) {
      const seen = await this.until((came) => !Buffer.isBuffer(came));
      const flushed = seen.pop();
      if (flushed.type !== 'Flushed' || flushed.sequence_id !== number) throw new Error(JSON.stringify(flushed));
      spoken.push(Buffer.concat(seen));
    }
    library.text(LONG);
    library.flush();
    await this.until((came) => Buffer.isBuffer(came));
    library.clear();
    const cleared = (await this.until((came) => !Buffer.isBuffer(came))).at(-1);
    if (cleared.type !== 'Cleared' || cleared.sequence_id !== 0) throw new Error(JSON.stringify(cleared));
    library.text('Yes.');
    library.close();
    const rest = await this.until((came) => came.type === CLOSED.type);
    if (rest.length < 2 || !rest.slice(0, -1).every((came) => Buffer.isBuffer(came))) throw new Error(JSON.stringify(rest));
    return spoken;
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
const finals = (came) => came.filter((event) => event.type === 'Results' && event.is_final);
const interim = (came) => came.filter((event) => event.type === 'Results' && !event.is_final).length;
const said = (came) => finals(came).map((event) => event.channel.alternatives[0].transcript).join(' ').trim();

// The type of received audio depends on the library.
async function bytes(came) {
  if (came instanceof Blob) return Buffer.from(await came.arrayBuffer());
  return came instanceof ArrayBuffer ? Buffer.from(came) : came;
}

async function main() {
  // A canonical WAV file has a header of 44 bytes.
  const audio = fs.readFileSync(recording).subarray(44);
  const spoken = await new Client().speak();
  process.stdout.write(JSON.stringify(await new Client().listen(audio, spoken)));
  process.exit(0);
}

setTimeout(() => {
  console.error('it takes too long');
  process.exit(1);
}, PATIENCE_MS).unref();
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
