// Talks with Pipecat's SDK for browsers, unmodified, in headless Chromium: node pipecat_page.cjs SERVER RECORDING.wav TRANSPORT
// with the transport websocket or webrtc.
//
// The page starts the bot at /start, asks the recording's question and asks again while it is answered. Prints what the SDK reports
// as JSON.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
const { isBuiltin } = require('node:module');
const os = require('node:os');
const path = require('node:path');
const { startBrowser, writeMicrophone } = require('./browser.cjs');

// Silence before the question, between its end and the second one, and after it.
const PAUSES_S = [1, 2.5, 20];
// Modules of the default media manager, which would load more from its maker's servers, and of the serializer for phone calls.
const LEFT_OUT = ['@daily-co/daily-js', 'x-law'];

// A script with these CommonJS packages and all that they need; it sets window.load.
function bundle(packages) {
  const modules = new Map();
  const find = (name, from) => {
    // Node's own modules are not a browser's, except for one that a package has too.
    if (LEFT_OUT.includes(name) || (isBuiltin(name) && name !== 'events')) return null;
    const file = require.resolve(name === 'events' ? 'events/events.js' : name, { paths: [path.dirname(from)] });
    return name === 'uuid' ? file.replace('/dist/cjs/', '/dist/cjs-browser/') : file;
  };
  const add = (name, from) => {
    const file = find(name, from);
    if (file === null || modules.has(file)) return;
    const code = fs.readFileSync(file, 'utf8');
    const needs = {};
    modules.set(file, { code, needs });
    for (const [, , needed] of code.matchAll(/\brequire\((["'])([^"']+)\1\)/g)) {
      add(needed, file);
      needs[needed] = find(needed, file);
    }
  };
  packages.forEach((name) => add(name, __filename));
  const entries = [...modules].map(([file, { code, needs }]) => `${JSON.stringify(file)}: [function (require, module, exports) {${code}\n}, ${JSON.stringify(needs)}]`);
  const roots = JSON.stringify(Object.fromEntries(packages.map((name) => [name, find(name, __filename)])));
  return `const files = {${entries.join(',\n')}};
const loaded = {};
function loadFile(file) {
  if (!file) return {};
  if (!loaded[file]) {
    const module = (loaded[file] = { exports: {} });
    files[file][0]((name) => loadFile(files[file][1][name]), module, module.exports);
  }
  return loaded[file].exports;
}
window.load = (name) => loadFile(${roots}[name]);`;
}

// In the page: talks until the second answer has ended. A call is connected anew then, as after a change of the network.
async function talk(server, transportName) {
  const { PipecatClient, RTVIEvent } = window.load('@pipecat-ai/client-js');
  const { WebSocketTransport, WavMediaManager } = window.load('@pipecat-ai/websocket-transport');
  const { SmallWebRTCTransport } = window.load('@pipecat-ai/small-webrtc-transport');
  const report = { events: [], users: [], outputs: [], llm: '', errors: [], failures: [], audio: 0 };
  const media = new WavMediaManager();
  const play = media.bufferBotAudio.bind(media);
  media.bufferBotAudio = (samples, id) => {
    report.audio += samples.length;
    return play(samples, id);
  };
  const isCall = transportName === 'webrtc';
  const transport = new (isCall ? SmallWebRTCTransport : WebSocketTransport)({ mediaManager: media });
  const client = new PipecatClient({ transport, enableMic: true });
  for (const name of Object.values(RTVIEvent)) {
    if (!/AudioLevel/.test(name)) client.on(name, () => report.events.push(name));
  }
  client.on(RTVIEvent.UserTranscript, ({ text, final }) => final && report.users.push(text));
  client.on(RTVIEvent.BotOutput, ({ text }) => report.outputs.push(text));
  client.on(RTVIEvent.BotLlmText, ({ text }) => (report.llm += text));
  client.on(RTVIEvent.TrackStarted, (track, participant) => {
    if (participant?.local || track.kind !== 'audio') return;
    const player = new Audio();
    player.srcObject = new MediaStream([track]);
    // So quiet that the browser's echo cancellation leaves the microphone alone.
    player.volume = 0.01;
    player.play();
  });
  client.on(RTVIEvent.Error, ({ data }) => report.errors.push(data));
  const until = async (isDone) => {
    const end = performance.now() + 30_000;
    while (!isDone() && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  const count = (name) => report.events.filter((event) => event === name).length;
  const heard = async () => [...await transport.pc.getStats()].map(([, row]) => row).find(({ type }) => type === 'inbound-rtp');
  report.ready = await client.startBotAndConnect({ endpoint: `${server}/start`, requestData: { transport: transportName } });
  await until(() => count(RTVIEvent.BotStoppedSpeaking) >= 2);
  if (isCall) {
    const { totalAudioEnergy, totalSamplesDuration, codecId } = await heard();
    const codec = (await transport.pc.getStats()).get(codecId).mimeType;
    report.call = { totalAudioEnergy, totalSamplesDuration, codec, id: transport.pc_id };
    const before = transport.pc;
    await transport.attemptReconnection(true);
    await until(() => transport.dc.readyState === 'open');
    report.call.reconnected = transport.pc !== before && transport.pc_id === report.call.id && (await heard()) !== undefined;
  }
  report.failures.push(await client.sendClientRequest('custom', {}).then(() => null, ({ data }) => data));
  client.sendText('What is your name?');
  await new Promise((resolve) => setTimeout(resolve, 300));
  await client.disconnect();
  report.state = client.state;
  return report;
}

async function main(server, recording, transport) {
  const script = bundle(['@pipecat-ai/client-js', '@pipecat-ai/websocket-transport', '@pipecat-ai/small-webrtc-transport']);
  const files = { '/': '<!doctype html><script src="sdk.js"></script>', '/sdk.js': script };
  const pages = http.createServer((request, response) => {
    response.setHeader('content-type', request.url === '/' ? 'text/html' : 'text/javascript');
    response.end(files[request.url] ?? '');
  });
  await new Promise((resolve) => { pages.listen(0, '127.0.0.1', resolve); });
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'voxbridge-pipecat-'));
  const file = path.join(dir, 'microphone.wav');
  writeMicrophone(recording, file, PAUSES_S);
  const page = await startBrowser(`${file}%noloop`, dir);
  await page.goTo(`http://127.0.0.1:${pages.address().port}/`);
  await page.until('window.load !== undefined', 'the SDK is loaded');
  const report = await page.run(`(${talk})(${JSON.stringify(server)}, ${JSON.stringify(transport)})`);
  report.problems = page.errors;
  await page.stop();
  pages.close();
  fs.rmSync(dir, { recursive: true });
  process.stdout.write(`${JSON.stringify(report)}\n`);
}

main(...process.argv.slice(2));
