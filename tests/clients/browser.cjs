// Drives a headless Chromium over its DevTools protocol, with the package `ws` ($NODE_PATH).
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { WebSocket } = require('ws');

const PATIENCE_MS = 40_000;

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// Starts the browser with a WAV file as its microphone. Its downloads go to `downloads`.
async function startBrowser(microphone, downloads) {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'voxbridge-browser-'));
  const browser = spawn('chromium', [
    '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars', '--no-first-run',
    '--autoplay-policy=no-user-gesture-required', '--use-fake-ui-for-media-stream', '--use-fake-device-for-media-stream',
    `--use-file-for-fake-audio-capture=${microphone}`, '--remote-debugging-port=0', `--user-data-dir=${profile}`, 'about:blank',
  ], { stdio: ['ignore', 'ignore', 'pipe'] });
  const address = await new Promise((resolve, reject) => {
    let errors = '';
    browser.stderr.on('data', (data) => {
      errors += data;
      const found = /DevTools listening on (\S+)/.exec(errors);
      if (found) resolve(found[1]);
    });
    browser.on('error', reject);
    browser.on('exit', () => reject(new Error(`chromium ended:\n${errors}`)));
  });
  const page = new Page(await connect(address));
  await page.open(downloads);
  const gone = new Promise((resolve) => { browser.on('exit', resolve); });
  // A test that is stopped takes its browser with it.
  process.on('exit', () => browser.kill('SIGKILL'));
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(1));
  page.stop = async () => {
    await page.call('Browser.close', {}, null);
    await gone;
    fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  return page;
}

// Writes a WAV file of the recording's question, twice. `pausesS` is the silence before it, between the two and after them.
function writeMicrophone(recording, file, pausesS) {
  const wav = fs.readFileSync(recording);
  const [head, question] = [Buffer.from(wav.subarray(0, 44)), wav.subarray(44)];
  const [before, between, after] = pausesS.map((seconds) => Buffer.alloc(seconds * 32_000));
  const audio = Buffer.concat([before, question, between, question, after]);
  head.writeUInt32LE(36 + audio.length, 4);
  head.writeUInt32LE(audio.length, 40);
  fs.writeFileSync(file, Buffer.concat([head, audio]));
}

function connect(address) {
  const socket = new WebSocket(address, { maxPayload: 256 << 20 });
  return new Promise((resolve, reject) => {
    socket.onopen = () => resolve(socket);
    socket.onerror = reject;
  });
}

class Page {
  constructor(socket) {
    this.socket = socket;
    this.calls = new Map();
    this.nextId = 1;
    // What the browser reports as an error: exceptions, failed requests, violations of the page's policy.
    this.errors = [];
    this.requests = [];
    socket.onmessage = ({ data }) => this.receive(JSON.parse(data));
  }

  receive({ id, result, error, method, params }) {
    const call = this.calls.get(id);
    this.calls.delete(id);
    if (call && error) call.reject(new Error(`${call.method}: ${error.message}`));
    else if (call) call.resolve(result);
    else if (method === 'Runtime.exceptionThrown') this.errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    else if (method === 'Log.entryAdded' && ['error', 'warning'].includes(params.entry.level)) this.errors.push(`${params.entry.text} ${params.entry.url ?? ''}`);
    else if (method === 'Runtime.consoleAPICalled' && ['error', 'warning', 'assert'].includes(params.type)) this.errors.push(JSON.stringify(params.args));
    else if (method === 'Network.requestWillBeSent') this.requests.push(params.request.url);
    else if (method === 'Network.webSocketCreated') this.requests.push(params.url);
    this.onEvent?.(method, params);
  }

  call(method, params = {}, sessionId = this.sessionId) {
    const id = this.nextId;
    this.nextId += 1;
    this.socket.send(JSON.stringify({ id, method, params, ...(sessionId && { sessionId }) }));
    return new Promise((resolve, reject) => { this.calls.set(id, { method, resolve, reject }); });
  }

  async open(downloads) {
    this.downloads = downloads;
    const { targetId } = await this.call('Target.createTarget', { url: 'about:blank' });
    ({ sessionId: this.sessionId } = await this.call('Target.attachToTarget', { targetId, flatten: true }));
    for (const domain of ['Page', 'Runtime', 'Log', 'Network', 'DOM']) await this.call(`${domain}.enable`);
    await this.call('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: downloads }, null);
  }

  async goTo(url) {
    await this.call('Page.navigate', { url });
  }

  // Runs an expression in the page; waits for a promise.
  async run(expression) {
    const { result, exceptionDetails } = await this.call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true, userGesture: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  // Waits until the expression is true.
  async until(expression, what = expression) {
    const end = Date.now() + PATIENCE_MS;
    while (!(await this.run(expression).catch(() => false))) {
      if (Date.now() > end) {
        await this.screenshot(path.join(this.downloads, 'failed.png'), 1440);
        throw new Error(`still waiting: ${what}; errors: ${this.errors}; failed.png shows the page`);
      }
      await pause(50);
    }
  }

  click(id) {
    return this.run(`document.getElementById('${id}').click()`);
  }

  choose(id, value) {
    return this.run(`{ const field = document.getElementById('${id}'); field.value = ${JSON.stringify(value)}; field.dispatchEvent(new Event('change')); field.dispatchEvent(new Event('input')); field.value }`);
  }

  async chooseFile(id, file) {
    const { root } = await this.call('DOM.getDocument');
    const { nodeId } = await this.call('DOM.querySelector', { nodeId: root.nodeId, selector: `#${id}` });
    await this.call('DOM.setFileInputFiles', { nodeId, files: [file] });
  }

  // Shows the page in a colour scheme, and at a size.
  async look(scheme, width, height) {
    await this.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
    await this.call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await pause(300);
  }

  // A picture of the whole page. The browser draws lists only where they are in view, so that the view becomes that large.
  async screenshot(file, width) {
    const height = await this.run('document.documentElement.scrollHeight');
    await this.call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await pause(200);
    const { data } = await this.call('Page.captureScreenshot');
    fs.writeFileSync(file, Buffer.from(data, 'base64'));
  }
}

module.exports = { startBrowser, writeMicrophone, pause };
