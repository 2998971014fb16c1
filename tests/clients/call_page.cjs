// Calls with OpenAI's agents library, unmodified, in headless Chromium: node call_page.cjs SERVER RECORDING.wav MODEL...
//
// The page asks the recording's question and asks again while it is answered, with each model at once. Prints, for each model,
// what the library reports as JSON.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { startBrowser, writeMicrophone } = require('./browser.cjs');

const BUNDLE = path.join(path.dirname(require.resolve('@openai/agents-realtime')), 'bundle/openai-realtime-agents.umd.js');
// Silence before the question, between its end and the second one, and after it.
const PAUSES_S = [1, 1.2, 20];

// In the page: talks with a model until the second answer.
async function talk(server, key, model) {
  const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebRTC } = window.OpenAIAgentsRealtime;
  const audioElement = document.createElement('audio');
  // The recording has no echo; the canceller would take the second question for one.
  const asRecorded = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  const mediaStream = await navigator.mediaDevices.getUserMedia({ audio: asRecorded });
  const transport = new OpenAIRealtimeWebRTC({ audioElement, mediaStream, baseUrl: `${server}/v1/realtime/calls` });
  const session = new RealtimeSession(new RealtimeAgent({ name: 'assistant', instructions: 'Answer briefly.' }), {
    transport,
    model,
    config: { audio: { input: { transcription: { model: 'whisper-1' }, turnDetection: { type: 'server_vad', interruptResponse: true } } } },
  });
  const report = { events: [], statuses: [], users: [], errors: [], interrupted: 0, sound: [] };
  const begin = performance.now();
  const now = () => Math.round(performance.now() - begin);
  transport.on('*', (event) => {
    report.events.push([now(), event.type]);
    if (event.type === 'response.done') report.statuses.push(event.response.status);
    if (event.type === 'conversation.item.input_audio_transcription.completed') report.users.push(event.transcript);
  });
  session.on('audio_interrupted', () => (report.interrupted += 1));
  session.on('error', ({ error }) => report.errors.push(String(error?.error?.message ?? error)));
  await session.connect({ apiKey: key });
  report.connectedAfterMs = now();
  report.callId = transport.callId;
  // When sound is heard, in steps of 10 ms.
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  analyser.fftSize = 512;
  context.createMediaStreamSource(audioElement.srcObject).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const listening = setInterval(() => {
    analyser.getFloatTimeDomainData(samples);
    report.sound.push([now(), samples.some((sample) => Math.abs(sample) > 0.01)]);
  }, 10);
  const isOver = () => report.statuses.length >= 2 && !report.sound.slice(-30).some(([, isLoud]) => isLoud);
  while (!isOver() && now() < 30_000) await new Promise((resolve) => setTimeout(resolve, 50));
  clearInterval(listening);
  const stats = [...(await transport.connectionState.peerConnection.getStats()).values()].find(({ type }) => type === 'inbound-rtp');
  report.stats = { lost: stats?.packetsLost, concealed: stats?.concealedSamples, received: stats?.packetsReceived, total: stats?.totalSamplesReceived };
  session.close();
  return report;
}

// A page whose own server asks for the key.
async function main(server, recording, models) {
  const files = { '/': '<!doctype html><script src="sdk.js"></script>', '/sdk.js': fs.readFileSync(BUNDLE) };
  const pages = http.createServer((request, response) => {
    response.setHeader('content-type', request.url === '/' ? 'text/html' : 'text/javascript');
    response.end(files[request.url] ?? '');
  });
  await new Promise((resolve) => { pages.listen(0, '127.0.0.1', resolve); });
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'voxbridge-call-'));
  const file = path.join(dir, 'microphone.wav');
  writeMicrophone(recording, file, PAUSES_S);
  const page = await startBrowser(`${file}%noloop`, dir);
  await page.goTo(`http://127.0.0.1:${pages.address().port}/`);
  await page.until('window.OpenAIAgentsRealtime !== undefined', 'the library is loaded');
  const talks = await Promise.all(models.map(async (model) => {
    // The library does not name the model; the secret does.
    const body = JSON.stringify({ session: { type: 'realtime', model } });
    const { value } = await (await fetch(`${server}/v1/realtime/client_secrets`, { method: 'POST', body })).json();
    return `(${talk})(${[server, value, model].map((it) => JSON.stringify(it))})`;
  }));
  const reports = await page.run(`Promise.all([${talks}])`);
  await page.stop();
  pages.close();
  fs.rmSync(dir, { recursive: true });
  process.stdout.write(`${JSON.stringify(reports)}\n`);
}

main(process.argv[2], process.argv[3], process.argv.slice(4));
