// The Macaw demo page without its user interface: node demo_page.cjs WS_URL RECORDING.wav
//
// Makes the page's WebSocket calls in the same order. Uses the package `ws` ($NODE_PATH) with the browser's interface, or the
// built-in WebSocket without the package. Prints the fields that the page would show, with their types, as JSON.
'use strict';

const fs = require('node:fs');

// Size of a ScriptProcessor's buffer in samples, and its duration.
const FRAME_BYTES = 8192;
const FRAME_MS = 256;
const PATIENCE_MS = 25_000;

const WebSocket = (() => {
  try {
    return require('ws').WebSocket;
  } catch {
    return globalThis.WebSocket;
  }
})();

const [url, recording] = process.argv.slice(2);
// A canonical WAV file has a header of 44 bytes. Two seconds of silence follow, because a page keeps listening.
const audio = Buffer.concat([fs.readFileSync(recording).subarray(44), Buffer.alloc(64_000)]);
const shown = { finals: [], partials: 0, events: [], types: {}, spoken: [], errors: [], socketErrors: 0 };

// The fields that the page reads, by event.
const READ = {
  'session.created': ['session_id'],
  'transcript.partial': ['text', 'segment_id'],
  'transcript.final': ['text', 'segment_id'],
  'tts.speaking_start': ['request_id'],
  'tts.speaking_end': ['request_id', 'cancelled'],
  'session.rate_limit': ['delay_ms'],
  'session.frames_dropped': ['dropped_ms'],
  error: ['message', 'recoverable'],
};

let chunks = [];
let step = 0;
let leftAt;

const ws = new WebSocket(`${url}/api/v1/realtime?model=faster-whisper-tiny&language=en`);
ws.binaryType = 'arraybuffer';

const speak = (text) =>
  ws.send(JSON.stringify({ type: 'tts.speak', text, voice: 'default', request_id: `req_${Date.now()}` }));

// Plays the recording, then requests two speeches: one is played to its end, the other is cancelled.
function proceed() {
  step += 1;
  if (step === 1) speak('Good morning.');
  if (step === 2) speak('This sentence is not spoken to its end. '.repeat(4).trim());
  if (step === 3) stopRecording();
}

function stopRecording() {
  clearInterval(microphone);
  if (ws.readyState === WebSocket.OPEN) {
    leftAt = performance.now();
    ws.send(JSON.stringify({ type: 'session.close' }));
    ws.close();
  }
}

let microphone;
ws.onopen = () => {
  let at = 0;
  microphone = setInterval(() => {
    if (ws.readyState !== WebSocket.OPEN) return;
    // The page keeps listening while it speaks; here it hears silence.
    const frame = Buffer.alloc(FRAME_BYTES);
    audio.copy(frame, 0, at, at + FRAME_BYTES);
    at = Math.min(at + FRAME_BYTES, audio.length);
    ws.send(frame.buffer.slice(frame.byteOffset, frame.byteOffset + FRAME_BYTES));
  }, FRAME_MS);
};

const handlers = {
  'transcript.partial': () => { shown.partials += 1; },
  'transcript.final': (event) => shown.finals.push({ id: event.segment_id, text: event.text }),
  'vad.speech_end': () => proceed(),
  'tts.speaking_start': () => { chunks = []; },
  'tts.speaking_end': (event) => {
    // The page converts all bytes to one Int16Array, which throws for an odd number.
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
    const samples = new Int16Array(new Uint8Array(bytes).buffer).length;
    shown.spoken.push({ cancelled: event.cancelled, played: event.cancelled ? 0 : samples });
    chunks = [];
    proceed();
  },
  error: (event) => shown.errors.push(event.message),
};

ws.onmessage = ({ data }) => {
  if (data instanceof ArrayBuffer) {
    chunks.push(data);
    if (step === 2 && chunks.length === 1) ws.send(JSON.stringify({ type: 'tts.cancel' }));
    return;
  }
  const event = JSON.parse(data);
  shown.events.push(event.type);
  for (const name of READ[event.type] ?? []) shown.types[`${event.type}.${name}`] = typeof event[name];
  handlers[event.type]?.(event);
};

ws.onerror = () => { shown.socketErrors += 1; };

const patience = setTimeout(() => {
  console.error(`still waiting: ${JSON.stringify(shown)}`);
  process.exit(1);
}, PATIENCE_MS);

ws.onclose = ({ code, wasClean }) => {
  clearTimeout(patience);
  clearInterval(microphone);
  const closedAfterMs = Math.round(performance.now() - leftAt);
  console.log(JSON.stringify({ ...shown, code, wasClean, closedAfterMs }));
};
