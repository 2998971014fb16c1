// A session of OpenAI's Live API by WebRTC in headless Chromium, as OpenAI's guide has it: node live_page.cjs SERVER RECORDING.wav
//
// The page makes the offer; its own server sends it to SERVER with the key, and attaches to the session. The page asks the
// recording's question, and asks again while it is answered. Prints what both see as JSON.
'use strict';

const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { WebSocket } = require('ws');
const { startBrowser, writeMicrophone } = require('./browser.cjs');

// Silence before the question, between its end and the second one, and after it.
const PAUSES_S = [2, 2.5, 20];

// In the page: talks until both questions are answered.
async function talk() {
  const asRecorded = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: asRecorded });
  const peer = new RTCPeerConnection();
  const report = { types: [], input: '', output: '', spans: [], errors: [], loud: [] };
  const begin = performance.now();
  const now = () => Math.round(performance.now() - begin);
  const hasTrack = new Promise((resolve) => { peer.ontrack = ({ streams, track }) => resolve(streams[0] ?? new MediaStream([track])); });
  for (const track of microphone.getTracks()) peer.addTrack(track, microphone);
  const channel = peer.createDataChannel('oai-events');
  channel.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (report.types.at(-1) !== event.type) report.types.push(event.type);
    if (event.type === 'session.started') report.id = event.session.id;
    if (event.type === 'session.input_transcript.delta') {
      report.input += event.delta;
      report.spans.push([event.start_ms, event.end_ms]);
    }
    if (event.type === 'session.output_transcript.delta') report.output += event.delta;
    if (event.type === 'session.closed') report.closed = event.reason;
    if (event.type === 'error') report.errors.push(event.error);
  };
  await peer.setLocalDescription(await peer.createOffer());
  while (peer.iceGatheringState !== 'complete') await new Promise((resolve) => { setTimeout(resolve, 20); });
  const sdp = await (await fetch('/session', { method: 'POST', body: peer.localDescription.sdp })).text();
  await peer.setRemoteDescription({ type: 'answer', sdp });
  const audio = document.createElement('audio');
  audio.srcObject = await hasTrack;
  await audio.play();
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  analyser.fftSize = 512;
  context.createMediaStreamSource(audio.srcObject).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const until = async (isMet) => {
    const end = now() + 30_000;
    while (!isMet() && now() < end) {
      analyser.getFloatTimeDomainData(samples);
      report.loud.push(samples.some((sample) => Math.abs(sample) > 0.01));
      await new Promise((resolve) => { setTimeout(resolve, 10); });
    }
  };
  // The second question is transcribed, after a pause.
  await until(() => report.spans.some(([start]) => start > report.spans[0][1] + 1000));
  await until(() => report.loud.slice(-100).every((isLoud) => !isLoud));
  channel.send(JSON.stringify({ type: 'session.close' }));
  await until(() => report.closed !== undefined);
  peer.close();
  return report;
}

async function main(server, recording) {
  const attached = { types: [] };
  // The application's server, which has the key.
  const createSession = async (sdp) => {
    const body = JSON.stringify({ session: { model: 'gpt-live-1', audio: { output: { voice: 'marin' } } }, transport: { type: 'webrtc', sdp } });
    const headers = { authorization: 'Bearer any', 'content-type': 'application/json' };
    const answer = await (await fetch(`${server}/v1/live/sessions`, { method: 'POST', headers, body })).json();
    attached.id = answer.session.id;
    const socket = new WebSocket(`${server.replace('http', 'ws')}/v1/live/sessions/${attached.id}/attach`);
    socket.on('message', (data) => attached.types.push(JSON.parse(data).type));
    // It gets what happens from then on.
    await once(socket, 'open');
    return answer.transport.sdp;
  };
  const pages = http.createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    response.setHeader('content-type', 'text/html');
    response.end(request.url === '/session' ? await createSession(body) : '<!doctype html>');
  });
  await new Promise((resolve) => { pages.listen(0, '127.0.0.1', resolve); });
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'voxbridge-live-'));
  const file = path.join(dir, 'microphone.wav');
  writeMicrophone(recording, file, PAUSES_S);
  const page = await startBrowser(`${file}%noloop`, dir);
  await page.goTo(`http://127.0.0.1:${pages.address().port}/`);
  const report = await page.run(`(${talk})()`);
  await page.stop();
  pages.close();
  fs.rmSync(dir, { recursive: true });
  process.stdout.write(`${JSON.stringify({ ...report, attached })}\n`);
  process.exit(0);
}

main(process.argv[2], process.argv[3]);
