// Uses the playground in a browser: node playground_page.cjs URL RECORDING.wav DIR URL_WITH_KEY KEY
//
// Talks, is answered, interrupts, sees words, saves the trace and loads it; shows its camera; then talks to a server that asks for a key. Leaves screenshots and the trace in DIR, and prints
// what the page showed as JSON. Uses the packages `ws` and `axe-core` ($NODE_PATH).
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { startBrowser, pause } = require('./browser.cjs');

const [url, recording, dir, urlWithKey, key] = process.argv.slice(2);
const SIZES = { wide: [1440, 1100], middle: [900, 1200], narrow: [390, 844] };
// The browser plays its microphone's file in a loop; the silence ends what is said.
const SILENCE_BYTES = 4 * 32_000;
const LONG_TRACE_ROWS = 2000;
const AXE = fs.readFileSync(path.join(process.env.NODE_PATH, 'axe-core/axe.min.js'), 'utf8');

function microphoneFile() {
  const wav = fs.readFileSync(recording);
  const sound = Buffer.concat([wav.subarray(44), Buffer.alloc(SILENCE_BYTES)]);
  const header = Buffer.from(wav.subarray(0, 44));
  header.writeUInt32LE(36 + sound.length, 4);
  header.writeUInt32LE(sound.length, 40);
  const file = path.join(dir, 'microphone.wav');
  fs.writeFileSync(file, Buffer.concat([header, sound]));
  return file;
}

const texts = (selector) => `[...document.querySelectorAll('${selector}')].map((item) => item.textContent)`;
const hasText = (selector, part) => `${texts(selector)}.some((text) => text.includes(${JSON.stringify(part)}))`;
const status = (text) => `document.getElementById('status').textContent.startsWith(${JSON.stringify(text)})`;

async function violations(page) {
  await page.run(`if (!window.axe) { ${AXE} }`);
  const found = await page.run('axe.run().then(({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join("; ")}`))');
  return found;
}

async function pictures(page, name, shown) {
  for (const scheme of ['light', 'dark']) {
    for (const [size, [width, height]] of Object.entries(SIZES)) {
      await page.look(scheme, width, height);
      shown.violations.push(...(await violations(page)).map((text) => `${name}, ${scheme}, ${size}: ${text}`));
      const overflow = await page.run('document.documentElement.scrollWidth - document.documentElement.clientWidth');
      if (overflow > 0) shown.violations.push(`${name}, ${size}: ${overflow} pixels too wide`);
      await page.screenshot(path.join(dir, `${name}-${scheme}-${size}.png`), width);
    }
  }
  await page.look('light', ...SIZES.wide);
}

// Speaks a text with one protocol, or sends the recording to it.
async function tryProtocol(page, protocol, transport = 'websocket') {
  await page.choose('protocol', protocol);
  await page.choose('transport', transport);
  await page.choose('source', 'recording');
  await page.click('start');
  await page.until(status('Connected'));
  if (protocol === 'deepgram-speak') {
    await page.click('speak');
    await page.until(hasText('#latency th', 'Text to first sound'));
  } else {
    await page.until(hasText('#talk p.user:not(.partial)', ''), `words from ${protocol}`);
  }
  const words = await page.run(texts('#talk p'));
  await page.click('stop');
  await page.until(status('Session ended'));
  return words;
}

// Shows a wrong key, then the right one, and sends the recording.
async function useKey(page) {
  await page.goTo(urlWithKey);
  await page.until(status('Enter an API key'));
  const shown = { violations: await violations(page) };
  for (const [shownKey, answer] of [['wrong', 'The server does not know this key'], [key, 'Ready']]) {
    await page.choose('key', shownKey);
    await page.run("document.querySelector('#key-form button').click()");
    await page.until(status(answer));
  }
  await page.until("document.getElementById('key-form').hidden");
  shown.words = await tryProtocol(page, 'macaw');
  shown.keyIsKept = await page.run("JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.getElementById('key').value])");
  shown.keyInUrls = page.requests.filter((request) => request.includes(key));
  return shown;
}

// Loads a trace of many messages: only rows near the view are elements, and scrolling and the arrow keys reach the others.
async function useLongTrace(page, saved) {
  const [header] = fs.readFileSync(saved, 'utf8').split('\n');
  const lines = Array.from({ length: LONG_TRACE_ROWS }, (_, at) => JSON.stringify({ ns: at * 1e6, in: 'client', text: `{"type":"row ${at}"}` }));
  const file = path.join(dir, 'long.jsonl');
  fs.writeFileSync(file, [header, ...lines, ''].join('\n'));
  await page.chooseFile('load-file', file);
  await page.until(hasText('#messages li', `row ${LONG_TRACE_ROWS - 1}`));
  const rows = texts('#messages li').replace('textContent', "textContent.replace(/.* row /, '')");
  const shown = { end: await page.run(rows) };
  await page.run(`{
    const list = document.getElementById('messages');
    list.focus();
    for (let left = 50; left > 0; left -= 1) document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowUp', bubbles: true }));
  }`);
  shown.focused = await page.run("document.activeElement.textContent.replace(/.* row /, '')");
  await page.run("document.getElementById('messages').scrollTop = 0");
  await page.until(hasText('#messages li', 'row 0'));
  shown.start = await page.run(rows);
  shown.movedPixels = await page.run(`new Promise((resolve) => {
    const list = document.getElementById('messages');
    list.scrollTop = 20_000;
    setTimeout(() => {
      const row = [...list.children].find((item) => item.getBoundingClientRect().top > list.getBoundingClientRect().top);
      const before = row.getBoundingClientRect().top;
      list.scrollTop += 400;
      setTimeout(() => resolve(before - row.getBoundingClientRect().top), 300);
    }, 300);
  })`);
  return shown;
}

// Lines of a trace: the messages of one side to or from the client or the model, 100 ms apart.
const traceOf = (header, messages) => [header, ...messages.map(([side, message], at) => {
  const [way, name, lane] = side.split(' ');
  return JSON.stringify({ ns: (at + 1) * 1e8, [way]: name, ...(lane && { lane: Number(lane) }), text: JSON.stringify(message) });
}), ''].join('\n');

const json = (value) => JSON.stringify(value);

// The first question is transcribed after its answer has begun, and the second while the first is interrupted.
const TURNS = [
  ['out client', { type: 'input_audio_buffer.speech_started', item_id: 'a' }],
  ['out client', { type: 'input_audio_buffer.speech_stopped', item_id: 'a' }],
  ['out lane 0', { type: 'input.append', input: {} }],
  ['out client', { type: 'response.created', response: { id: 'r' } }],
  ['in lane 0', { type: 'response.output.delta', kind: 'text', text: 'The answer' }],
  ['out client', { type: 'response.output_audio_transcript.delta', item_id: 'm', response_id: 'r', delta: 'The answer' }],
  ['in lane 0', { type: 'response.done', text: 'The answer' }],
  ['out lane 0', { type: 'session.close', reason: 'turn_done' }],
  ['in timeout', {}],
  ['out client', { type: 'input_audio_buffer.speech_started', item_id: 'b' }],
  ['out client', { type: 'conversation.item.input_audio_transcription.delta', item_id: 'a', delta: 'The first' }],
  ['out client', { type: 'response.output_audio_transcript.done', item_id: 'm', response_id: 'r', transcript: 'The answer' }],
  ['out client', { type: 'response.done', response: { id: 'r', status: 'cancelled' } }],
  ['out client', { type: 'conversation.item.input_audio_transcription.completed', item_id: 'a', transcript: 'The first question' }],
  ['out client', { type: 'input_audio_buffer.speech_stopped', item_id: 'b' }],
];
// Macaw's protocol names no utterance. The answer's first words come before its sound.
const CONVERSATION = [
  ['out client', { type: 'vad.speech_start' }],
  ['out client', { type: 'transcript.partial', text: 'The', segment_id: 0 }],
  ['out client', { type: 'transcript.partial', text: 'You', segment_id: 1, speaker: 'assistant' }],
  ['out client', { type: 'tts.speaking_start', request_id: 'turn' }],
  ['out client', { type: 'transcript.partial', text: 'You said', segment_id: 1, speaker: 'assistant' }],
  ['out client', { type: 'transcript.final', text: 'The question', segment_id: 0 }],
  ['out client', { type: 'vad.speech_end' }],
  ['out client', { type: 'transcript.final', text: 'You said', segment_id: 1, speaker: 'assistant' }],
  ['out client', { type: 'vad.speech_start' }],
  ['out client', { type: 'vad.speech_end' }],
  ['out client', { type: 'transcript.final', text: '', segment_id: 2 }],
];

// A call on a tool server, a call of the client's own tool, and two answers of a device, of which one is a call's.
const TOOLS = [
  { out: 'call_tool', words: '5 home light', text: '{"on": true}' },
  { in: 'tool_result', words: '5', text: 'light: on' },
  { out: 'client', text: json({ type: 'response.function_call_arguments.done', call_id: 'c', name: 'show', arguments: '{}' }) },
  { in: 'client', text: json({ type: 'conversation.item.create', item: { type: 'function_call_output', call_id: 'c', output: 'shown' } }) },
  { out: 'client', text: json({ type: 'mcp', payload: { id: 3, method: 'tools/call', params: { name: 'volume', arguments: { to: 3 } } } }) },
  { in: 'client', text: json({ type: 'mcp', payload: { id: 2, result: { tools: [] } } }) },
  { in: 'client', text: json({ type: 'mcp', payload: { id: 3, result: { content: [{ type: 'text', text: 'no' }], isError: true } } }) },
];
const toolsOf = (header) => [header, ...TOOLS.map((record, at) => json({ ns: (at + 1) * 1e8, ...record })), ''].join('\n');

async function loadLines(page, name, text) {
  const file = path.join(dir, `${name}.jsonl`);
  fs.writeFileSync(file, text);
  await page.chooseFile('load-file', file);
  await page.until(status(`Loaded ${name}.jsonl`));
  await page.until("document.querySelector('#messages li')");
}

// Chooses the first row of this side with this text; returns the rows that it is linked to.
async function linksOf(page, side, row) {
  await page.run(`[...document.querySelectorAll('#messages .${side} button')].find(({ textContent }) => textContent.includes(${JSON.stringify(row)})).click()`);
  return page.run(texts('#detail li'));
}

// What is said stands in the order in which it began, and answers lead to their requests.
async function useOrder(page, saved) {
  const [header] = fs.readFileSync(saved, 'utf8').split('\n');
  const shown = {};
  await loadLines(page, 'turns', traceOf(header, TURNS));
  shown.turns = await page.run(texts('#talk p'));
  shown.modelsAnswer = await linksOf(page, 'model', 'response.done');
  shown.clientsAnswer = await linksOf(page, 'client', 'response.done');
  shown.request = await linksOf(page, 'model', 'input.append');
  await loadLines(page, 'conversation', traceOf(header, CONVERSATION));
  shown.conversation = await page.run(texts('#talk p'));
  await loadLines(page, 'tools', toolsOf(header));
  shown.tools = await page.run(texts('#talk p'));
  shown.toolTime = await page.run(texts('#latency th'));
  return shown;
}

// Labels of marks that are close together: [from, to, text] of each, in a font in which a letter is ten pixels wide.
const placedLabels = (page) => page.run(`import('./playground/timeline.js').then(({ placeMarks }) => {
  const mark = (timeS, text, more) => ({ kind: 'transcript', timeS, text, ...more });
  const marks = [mark(0, 'speech', { isEnd: true }), mark(0, 'short'), mark(1, 'a longer text'), mark(1.05, 'partial', { isSmall: true }), mark(2, 'hidden'), mark(2.3, '', { isEnd: true }),
    { ...mark(2.4, 'another kind'), kind: 'speech' }, mark(2.5, 'at the edge of the view')];
  return placeMarks(marks, (timeS) => timeS * 100, 400, (text) => text.length * 10).filter(({ label }) => label).map(({ left, label, kind }) => [kind, left, left + 8 + label.length * 10, label]);
})`);

// Three hours of sound, whose amplitude is the time as a share of four hours: what is kept of them, and what a cut leaves.
const longSound = (page) => page.run(`import('./playground/measures.js').then(({ Sound }) => {
  const sound = new Sound();
  for (let at = 0; at < 3 * 3600; at += 1) sound.push(new Float32Array(50).fill(at / 14400), 50, at);
  const { envelope } = sound;
  const kept = { columns: envelope.highs.length, last: envelope.at(envelope.end - 1), middle: envelope.at(2 * 3600 * 50), oldest: envelope.at(0) };
  sound.cutAt(2 * 3600);
  return { ...kept, cut: envelope.at(2 * 3600 * 50), beforeCut: envelope.at(2 * 3600 * 50 - 1) };
})`);

async function usePage(page) {
  const shown = { violations: [], protocols: {}, calls: {} };
  await page.goTo(url);
  await page.until(status('Ready'));
  shown.explains = await page.run("[...document.querySelectorAll('.intro, #messages-note')].map((note) => note.checkVisibility() && note.textContent.length > 40)");
  await pictures(page, 'ready', shown);

  await page.choose('protocol', 'macaw');
  await page.choose('source', 'microphone');
  await page.click('start');
  await page.until(status('Connected'));
  await page.until(hasText('#talk p:not(.partial)', 'You'), 'words');
  shown.heard = await page.run(texts('#talk p:not(.partial)'));
  await page.choose('text', 'This sentence is long enough to be interrupted before it has come to its end. '.repeat(3));
  await page.click('speak');
  await page.until(hasText('#messages .down', 'tts.speaking_start'));
  await pause(600);
  await page.click('interrupt');
  await page.until(hasText('#latency th', 'Interrupt to silence'));
  shown.frameMs = await page.run(`new Promise((resolve) => {
    const times = [];
    const next = (time) => { times.push(time); if (times.length < 60) requestAnimationFrame(next); else resolve((times.at(-1) - times[0]) / 59); };
    requestAnimationFrame(next);
  })`);
  await page.click('pause');
  const whilePaused = await page.run("document.getElementById('count').textContent");
  await pause(700);
  shown.pauseHolds = whilePaused === (await page.run("document.getElementById('count').textContent"));
  await page.click('pause');
  await page.click('stop');
  await page.until(status('Session ended'));
  // The lists follow ten times a second.
  await pause(300);
  shown.latency = await page.run(texts('#latency tr'));

  await page.click('save');
  await page.until(status('Saved'));
  const saved = (await page.run("document.getElementById('status').textContent")).slice('Saved '.length);
  shown.saved = path.join(dir, saved);
  const size = () => (fs.existsSync(shown.saved) ? fs.statSync(shown.saved).size : 0);
  for (let left = 100; left > 0 && size() === 0; left -= 1) await pause(50);

  const view = () => page.run(`[${texts('#messages li')}, ${texts('#talk p')}]`);
  const live = JSON.stringify(await view());
  await page.chooseFile('load-file', shown.saved);
  await page.until(status('Loaded'));
  await page.until("document.querySelectorAll('#messages li').length > 0");
  await pause(300);
  shown.loadsTheSame = live === JSON.stringify(await view());
  await page.choose('filter', 'transcript.final');
  shown.filtered = await page.run(texts('#messages li'));
  await page.run("document.querySelector('#messages button').click()");
  shown.linked = await page.run(texts('#detail li'));
  await page.choose('filter', '');
  await page.click('play');
  await page.until("document.getElementById('play').textContent === 'Stop playing'");
  await pause(500);
  await page.click('play');
  await pictures(page, 'trace', shown);

  shown.longSound = await longSound(page);
  shown.longTrace = await useLongTrace(page, shown.saved);
  shown.order = await useOrder(page, shown.saved);
  shown.labels = await placedLabels(page);

  // The microphone's next words interrupt the answer.
  await page.choose('protocol', 'openai-realtime');
  await page.choose('source', 'microphone');
  await page.click('start');
  await page.until(status('Connected'));
  await page.until("!document.getElementById('speak').disabled");
  await page.click('speak');
  await page.until(hasText('#latency th', 'Speech to silence'), 'the interruption by speech');
  await page.click('stop');
  await page.until(status('Session ended'));

  await page.choose('protocol', 'macaw');
  await page.choose('profile', 'video');
  await page.choose('camera', '2');
  await page.look('light', ...SIZES.narrow);
  await page.click('start');
  await page.until(status('Connected'));
  // On a phone, what is said is in view.
  await page.until("(({ top, bottom }) => top >= 0 && bottom <= innerHeight)(document.getElementById('talk').getBoundingClientRect())", 'the conversation in view');
  await page.look('light', ...SIZES.wide);
  await page.until(hasText('#messages .model.up', 'with a picture'), 'a picture for the model');
  shown.preview = await page.run("document.getElementById('preview').videoWidth > 0");
  shown.violations.push(...(await violations(page)));
  await page.screenshot(path.join(dir, 'camera.png'), SIZES.wide[0]);
  await page.click('stop');
  await page.until(status('Session ended'));

  for (const protocol of ['openai-realtime', 'vosk', 'deepgram-listen', 'deepgram-speak']) {
    shown.protocols[protocol] = await tryProtocol(page, protocol);
    if (!(await page.run("document.getElementById('transport-field').hidden"))) shown.calls[protocol] = await tryProtocol(page, protocol, 'webrtc');
  }
  Object.assign(shown, { errors: [...page.errors], otherSites: page.requests.filter((request) => !/^(blob:|data:|about:|(http|ws):..(127\.0\.0\.1|localhost))/.test(request)) });
  // A wrong key is an error that the browser reports as well.
  shown.withKey = await useKey(page);
  return shown;
}

async function run() {
  fs.mkdirSync(dir, { recursive: true });
  const page = await startBrowser(microphoneFile(), dir);
  try {
    console.log(JSON.stringify(await usePage(page)));
  } finally {
    // A browser that stayed would go on talking.
    await page.stop();
  }
}

run().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
