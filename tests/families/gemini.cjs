// The npm client of Gemini Live (@google/genai), unmodified, against voxbridge.
//
// gemini.cjs CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// Prints one JSON object. Two packages that the client only imports are not installed: empty ones stand in for them.
'use strict';

const fs = require('node:fs');
const Module = require('node:module');
const { run, writeWav } = require('./script.cjs');

const standIns = { 'google-auth-library': { GoogleAuth: class {} }, 'p-retry': Object.assign((call) => call(), { AbortError: Error }) };
const load = Module._load;
Module._load = (name, ...rest) => standIns[name] ?? load(name, ...rest);
const { GoogleGenAI, Modality } = require('@google/genai');

const IN_HZ = 16000;
const OUT_HZ = 24000;

function readRecording(path) {
  const file = fs.readFileSync(path);
  return file.subarray(file.indexOf('data') + 8);
}

const seconds = (audio) => Math.round((audio.length / 2 / OUT_HZ) * 1000) / 1000;
const audioOf = (message) =>
  Buffer.concat((message.serverContent?.modelTurn?.parts ?? []).map((part) => Buffer.from(part.inlineData?.data ?? '', 'base64')));

function connect(baseUrl, onmessage, more = {}) {
  const ai = new GoogleGenAI({ apiKey: 'test-key', httpOptions: { baseUrl } });
  let closed;
  const end = new Promise((resolve) => (closed = resolve));
  const session = ai.live.connect({
    model: 'gemini-live',
    config: {
      responseModalities: [Modality.AUDIO],
      systemInstruction: 'Answer in one sentence.',
      inputAudioTranscription: {},
      outputAudioTranscription: {},
      ...more,
    },
    callbacks: { onmessage, onerror: (event) => closed({ error: event.message }), onclose: (event) => closed(event) },
  });
  return { session, end };
}

// Sends a recording as it would be spoken, and silence behind it, until the returned function is called.
function say(session, pcm) {
  const step = (IN_HZ / 10) * 2;
  const start = Date.now();
  let at = 0;
  const timer = setInterval(() => {
    for (; at / 2 / IN_HZ < (Date.now() - start) / 1000; at += step) {
      const piece = at < pcm.length ? pcm.subarray(at, at + step) : Buffer.alloc(step);
      session.sendRealtimeInput({ audio: { data: piece.toString('base64'), mimeType: `audio/pcm;rate=${IN_HZ}` } });
    }
  }, 20);
  return () => clearInterval(timer);
}

async function conversation(baseUrl, recording, heard) {
  let audio = Buffer.alloc(0);
  let [text, user] = ['', ''];
  let done;
  const complete = new Promise((resolve) => (done = resolve));
  const { session, end } = connect(baseUrl, (message) => {
    audio = Buffer.concat([audio, audioOf(message)]);
    text += message.serverContent?.outputTranscription?.text ?? '';
    user += message.serverContent?.inputTranscription?.text ?? '';
    if (message.serverContent?.turnComplete) done();
  });
  const open = await session;
  const stop = say(open, readRecording(recording));
  await Promise.race([complete, end]);
  stop();
  open.close();
  writeWav(heard, audio, OUT_HZ);
  return { text: text.trim(), user: user.trim(), audio_s: seconds(audio) };
}

async function interruption(baseUrl, recording, _heard, words) {
  let [before, late] = [Buffer.alloc(0), Buffer.alloc(0)];
  let [stopped, stop] = [false, null];
  let [open, done] = [null, null];
  const complete = new Promise((resolve) => (done = resolve));
  const { session, end } = connect(baseUrl, (message) => {
    stopped ||= Boolean(message.serverContent?.interrupted);
    if (stopped) late = Buffer.concat([late, audioOf(message)]);
    else before = Buffer.concat([before, audioOf(message)]);
    if (before.length > 0 && !stop) stop = say(open, readRecording(recording));
    if (message.serverContent?.turnComplete) done();
  });
  open = await session;
  open.sendClientContent({ turns: words });
  await Promise.race([complete, end]);
  stop?.();
  open.close();
  return { audio_s: seconds(before), stopped, late_audio_s: seconds(late) };
}

async function error(baseUrl) {
  const { session, end } = connect(baseUrl, () => {});
  const open = await session;
  open.sendRealtimeInput({ audio: { data: 'AAAA', mimeType: 'audio/ogg' } });
  const { code, reason } = await end;
  return { error: `${code} ${reason}` };
}

async function close(baseUrl) {
  const { session, end } = connect(baseUrl, () => {});
  const open = await session;
  open.sendRealtimeInput({ audio: { data: Buffer.alloc(3200).toString('base64'), mimeType: `audio/pcm;rate=${IN_HZ}` } });
  open.close();
  const { code } = await end;
  return { code: code ?? null, clean: true };
}

const [cell, ...rest] = process.argv.slice(2);
setTimeout(() => {
  console.error('no end within 38 s');
  process.exit(1);
}, 38000).unref();
run(() => ({ conversation, interruption, error, close })[cell](...rest));
