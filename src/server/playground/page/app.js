// The page: connects its controls with a session, a trace and the views of it.

import { Player, sendFile, sendFileTrack, sendMicrophone, sendMicrophoneTrack } from './audio.js';
import { sendCamera } from './camera.js';
import { ConversationList } from './conversation.js';
import { CLIENTS } from './protocols.js';
import { Session } from './session.js';
import { Timeline } from './timeline.js';
import { Trace } from './trace.js';
import { Wires, duration } from './wires.js';

// Texts and lists change at most this often; the timeline is drawn with every frame of the screen.
const UPDATE_MS = 100;
// Where everything stands in one column, as in style.css.
const NARROW = matchMedia('(max-width: 56rem)');
const $ = (id) => document.getElementById(id);
const SPEAKERS = { user: 'You', typed: 'You, typed', model: 'MiniCPM-o', text: 'To speak', tool: 'Tool', error: 'Error' };

const state = {
  key: null, settings: null, session: null, trace: new Trace(), context: null, player: null,
  stopSources: [], isPaused: false, followsPresent: true, viewEndS: 0, clockOffsetS: null,
  playback: null, updatedAt: 0, drawnVersion: -1, shownVersion: -1,
};

const timeline = new Timeline($('timeline'), moveView);
const conversation = new ConversationList($('talk'));
const wires = new Wires($('messages'), $('detail'), $('count'));
wires.onSelect = ({ timeS }) => {
  if (!state.session) moveView(Math.max(timeS + timeline.shownS / 2, timeline.shownS));
};

function setStatus(text, kind = '') {
  $('status').textContent = text;
  $('status').className = kind;
}

async function loadSettings() {
  const headers = state.key ? { authorization: `Bearer ${state.key}` } : {};
  const answer = await fetch('playground/settings', { headers });
  $('key-form').hidden = answer.ok;
  $('setup').hidden = !answer.ok;
  if (!answer.ok) {
    const reason = answer.status === 401 ? (state.key ? 'The server does not know this key.' : 'Enter an API key to begin.') : `The server answered ${answer.status}.`;
    setStatus(reason, state.key ? 'failed' : '');
    $('key').focus();
    return;
  }
  state.settings = await answer.json();
  showSettings();
  setStatus('Ready');
}

const option = (value, text = value) => Object.assign(document.createElement('option'), { value, textContent: text });

function showSettings() {
  const { protocols, voices, version, simulated } = state.settings;
  $('simulated').hidden = !simulated;
  conversation.names = { ...SPEAKERS, ...(simulated && { model: 'Simulated model' }) };
  $('facts').textContent = `Version ${version}`;
  const served = protocols.filter(({ profiles }) => profiles.length > 0);
  $('protocol').replaceChildren(...served.map(({ name }) => option(name, CLIENTS[name].title)));
  $('voice').replaceChildren(option('', 'Default'), ...voices.map((name) => option(name)));
  const hasMicrophone = Boolean(navigator.mediaDevices?.getUserMedia);
  $('source').querySelector('[value=microphone]').disabled = !hasMicrophone;
  if (!hasMicrophone) $('source').value = 'recording';
  showProfiles();
}

const chosenProtocol = () => state.settings.protocols.find(({ name }) => name === $('protocol').value);

function showProfiles() {
  const { profiles } = chosenProtocol();
  const client = CLIENTS[$('protocol').value];
  $('profile').replaceChildren(...profiles.map(({ profile, model }) => option(model, profile)));
  $('speak').textContent = client.speakLabel ?? 'Speak';
  $('text-label').textContent = client.textLabel ?? 'Text to speak';
  $('source').disabled = !client.audio;
  $('transport-field').hidden = !canCall();
  showSourceNote();
}

// Calls by WebRTC are OpenAI's, where the server has a port for them.
const canCall = () => state.settings.calls && CLIENTS[$('protocol').value].hasCalls;

function showSourceNote() {
  const source = $('source').value;
  const profile = $('profile').selectedOptions[0]?.textContent;
  $('camera-field').hidden = !canSee();
  $('file-field').hidden = source !== 'file';
  let note = '';
  if ($('source').disabled) note = 'This protocol sends no sound.';
  else if (!navigator.mediaDevices?.getUserMedia) note = 'Browsers give the microphone only to pages from localhost or over HTTPS. Start the server with --tls-self-signed, or open the page at localhost.';
  else if (source === 'microphone') note = `Echo cancellation is on. ${profile === 'speech' ? 'While a text is spoken, this profile does not listen.' : 'Speak while it answers to interrupt.'}`;
  $('source-note').textContent = note;
}

// Pictures reach the model in profile video, and in the turns of an assistant.
const canSee = () => Boolean(CLIENTS[$('protocol').value].picture && navigator.mediaDevices?.getUserMedia)
  && ['video', 'assistant'].includes($('profile').selectedOptions[0]?.textContent);

function openAudio() {
  state.context ??= new AudioContext({ latencyHint: 'interactive' });
  state.player ??= new Player(state.context);
  return state.context.resume();
}

function useTrace(trace) {
  stopPlayback();
  Object.assign(state, { trace, followsPresent: true, viewEndS: 0, clockOffsetS: null, drawnVersion: -1, shownVersion: -1 });
  setPaused(false);
  wires.reset(trace);
  conversation.reset();
  showLatency();
}

async function start() {
  const source = $('source').value;
  const file = $('file').files[0];
  if (!$('source').disabled && source === 'file' && !file) {
    setStatus('Choose an audio file first.', 'failed');
    $('file').focus();
    return;
  }
  setStatus('Connecting');
  $('start').disabled = true;
  const trace = new Trace();
  useTrace(trace);
  const settings = {
    key: state.key, protocol: chosenProtocol(), isCall: canCall() && $('transport').value === 'webrtc', model: $('profile').value, language: $('language').value, voice: $('voice').value,
  };
  const session = new Session(settings, {
    line: (line) => addLine(trace, line),
    event: (event) => handleEvent(event),
    audio: (samples, rateHz) => state.player.push(Float32Array.from(samples, (sample) => sample / 32768), rateHz),
    closed: (reason) => ended(session, reason),
  });
  state.session = session;
  try {
    await openAudio();
    await session.open();
    setRunning(true);
    setStatus('Connected', 'live');
    showConversation();
    const perSecond = canSee() ? Number($('camera').value) : 0;
    if (session.canHear) await useSource(session, startSource(session, source, file));
    if (perSecond) await useSource(session, sendCamera($('preview'), perSecond, (image) => session.sendPicture(image)));
  } catch (error) {
    const isRefused = error.name === 'NotAllowedError';
    session.connection?.close();
    ended(session, isRefused ? 'The browser was not allowed to use the microphone or the camera.' : error.message);
  }
}

// On a small screen, the settings make room for what is said.
function showConversation() {
  if (NARROW.matches) $('settings').open = false;
  $('talk').scrollIntoView({ block: 'nearest' });
}

// Keeps what stops a source. The session may have ended before the source began.
async function useSource(session, starting) {
  const stop = await starting;
  if (state.session === session) state.stopSources.push(stop);
  else stop();
}

async function startSource(session, source, file) {
  const { client: { inputHz }, settings: { isCall } } = session;
  const send = (samples) => session.sendAudio(samples);
  const sendTrack = (track) => session.sendTrack(track);
  if (source === 'microphone') return isCall ? sendMicrophoneTrack(sendTrack) : sendMicrophone(state.context, inputHz, send);
  if (source === 'none') return () => {};
  const data = source === 'file' ? await file.arrayBuffer() : await (await fetch('playground/recording.wav')).arrayBuffer();
  return isCall ? sendFileTrack(state.context, data, sendTrack) : sendFile(state.context, data, inputHz, send);
}

function addLine(trace, line) {
  trace.add(line);
  if (trace !== state.trace) return;
  const nowS = performance.now() / 1000;
  // The earliest line of all is the least delayed one.
  const offset = nowS - trace.endS;
  state.clockOffsetS = Math.min(state.clockOffsetS ?? offset, offset);
  if (trace.lines.length === 1) $('facts').textContent = `Version ${trace.header.voxbridge} · client ${trace.header.client} · profile ${trace.header.profile} · model ${trace.header.dialect}`;
}

function handleEvent({ kind, cancelled }) {
  if (kind === 'speech-start' && state.player.isPlaying) {
    // Where the server ends the answer by itself, only the sound that it has sent already must stop.
    if (state.session.client.stopsAtSpeech) state.player.stop();
    else interrupt();
  }
  if (kind === 'speaking-end' && cancelled) state.player.stop();
}

function interrupt() {
  state.player?.stop();
  state.session?.interrupt();
}

function ended(session, reason) {
  if (state.session !== session) return;
  for (const stop of state.stopSources) stop();
  Object.assign(state, { session: null, stopSources: [] });
  state.viewEndS = state.trace.endS;
  setRunning(false);
  setStatus(reason || 'Session ended', reason ? 'failed' : '');
}

function setRunning(isRunning) {
  $('start').disabled = isRunning;
  $('stop').disabled = !isRunning;
  $('setup-fields').disabled = isRunning;
  const canSpeak = isRunning && state.session.canSpeak;
  $('speak').disabled = !canSpeak;
  $('interrupt').disabled = !canSpeak;
  $('load').disabled = isRunning;
  const hasTrace = Boolean(state.trace.header);
  $('pause').disabled = !isRunning;
  $('play').disabled = isRunning || !hasTrace;
  $('save').disabled = !isRunning && !hasTrace;
  if (!isRunning) setPaused(false);
}

function setPaused(isPaused) {
  state.isPaused = isPaused;
  $('pause').setAttribute('aria-pressed', String(isPaused));
  $('pause').textContent = isPaused ? 'Paused' : 'Pause';
  if (!isPaused) state.followsPresent = true;
}

function presentS() {
  if (!state.session || state.clockOffsetS === null) return state.trace.endS;
  return Math.max(state.trace.endS, performance.now() / 1000 - state.clockOffsetS);
}

// Moves the view of the timeline; its end follows the present again when it gets there.
function moveView(endS) {
  const present = presentS();
  state.viewEndS = Math.max(Math.min(timeline.shownS, present), Math.min(endS, present));
  state.followsPresent = Boolean(state.session) && !state.isPaused && endS >= present;
  timeline.isDirty = true;
}

function save() {
  const { trace } = state;
  if (!trace.header) return;
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([trace.text()], { type: 'application/jsonl' }));
  link.download = `voxbridge-${Math.round(trace.header.opened_unix_ns / 1e6)}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  setStatus(`Saved ${link.download}`, state.session ? 'live' : '');
}

async function load(file) {
  try {
    const trace = new Trace();
    for (const line of (await file.text()).split('\n')) if (line.trim()) trace.add(line);
    if (!trace.header) throw new Error('The file is empty.');
    useTrace(trace);
    state.viewEndS = Math.min(trace.endS, timeline.shownS);
    state.followsPresent = false;
    const { voxbridge, client, profile, dialect } = trace.header;
    $('facts').textContent = `Version ${voxbridge} · client ${client} · profile ${profile} · model ${dialect}`;
    setRunning(false);
    setStatus(`Loaded ${file.name}`);
  } catch (error) {
    setStatus(error instanceof SyntaxError ? 'This file is not a trace of voxbridge.' : error.message, 'failed');
  }
}

// Plays what the timeline shows and what follows.
async function play() {
  if (state.playback) {
    stopPlayback();
    return;
  }
  await openAudio();
  const { trace, context } = state;
  const atEnd = state.viewEndS >= trace.endS;
  const fromS = atEnd && trace.endS <= timeline.shownS ? 0 : Math.max(0, state.viewEndS - timeline.shownS);
  const startedAt = context.currentTime + 0.1;
  for (const { startS, samples, rateHz } of [...trace.up.chunks, ...trace.down.chunks]) {
    const skipped = Math.max(0, fromS - startS);
    if (skipped < samples.length / rateHz) state.player.playAt(samples, rateHz, startedAt + Math.max(0, startS - fromS), skipped);
  }
  state.playback = { fromS, startedAt };
  $('play').textContent = 'Stop playing';
}

function stopPlayback() {
  if (!state.playback) return;
  state.player.stop();
  state.playback = null;
  $('play').textContent = 'Play';
  timeline.isDirty = true;
}

function playbackS() {
  if (!state.playback) return null;
  const cursorS = state.playback.fromS + Math.max(0, state.context.currentTime - state.playback.startedAt);
  if (cursorS > Math.max(state.trace.endS, state.trace.down.endS)) {
    stopPlayback();
    return null;
  }
  if (cursorS > state.viewEndS - timeline.shownS * 0.1) state.viewEndS = cursorS + timeline.shownS * 0.1;
  return cursorS;
}

function draw() {
  requestAnimationFrame(draw);
  const cursorS = playbackS();
  const isMoving = (state.session && state.followsPresent && !state.isPaused) || cursorS !== null;
  if (isMoving && cursorS === null) state.viewEndS = presentS();
  if (isMoving || timeline.isDirty || (state.drawnVersion !== state.trace.version && !state.isPaused)) {
    timeline.isDirty = false;
    state.drawnVersion = state.trace.version;
    timeline.draw(state.trace, Math.max(state.viewEndS, timeline.shownS), cursorS);
  }
  const now = performance.now();
  if (now - state.updatedAt < UPDATE_MS) return;
  state.updatedAt = now;
  updatePosition();
  if (state.isPaused || state.shownVersion === state.trace.version) return;
  state.shownVersion = state.trace.version;
  wires.update();
  conversation.show(state.trace.conversation.entries);
  showLatency();
}

function updatePosition() {
  const slider = $('position');
  const [least, most] = [Math.min(timeline.shownS, presentS()), presentS()];
  slider.disabled = most <= timeline.shownS;
  if (document.activeElement === slider && slider.matches(':active')) return;
  slider.min = least.toFixed(1);
  slider.max = most.toFixed(1);
  slider.value = state.viewEndS.toFixed(1);
  slider.setAttribute('aria-valuetext', `${Math.round(state.viewEndS)} of ${Math.round(most)} seconds`);
}

function showLatency() {
  const { hops, queue, context } = state.trace;
  const rows = [...hops].map(([name, hop]) => {
    const row = document.createElement('tr');
    row.append(Object.assign(document.createElement('th'), { scope: 'row', textContent: name }));
    for (const value of [hop.last, hop.median, hop.highest]) row.append(Object.assign(document.createElement('td'), { textContent: duration(value) }));
    return row;
  });
  $('latency').replaceChildren(...rows);
  $('queue').max = queue?.length || 1;
  $('queue').value = queue?.position ?? 0;
  $('queue-text').textContent = queue ? `${queue.position} of ${queue.length}` : 'empty';
  $('context').value = context ?? 0;
  $('context-text').textContent = `${context ?? 0} tokens`;
}

$('key-form').onsubmit = (event) => {
  event.preventDefault();
  state.key = $('key').value;
  $('key').value = '';
  loadSettings();
};
$('setup').onsubmit = (event) => {
  event.preventDefault();
  start();
};
$('say').onsubmit = (event) => {
  event.preventDefault();
  const text = $('text').value.trim();
  if (text && state.session?.canSpeak) state.session.speak(text);
};
$('protocol').onchange = showProfiles;
$('source').onchange = showSourceNote;
$('profile').onchange = showSourceNote;
$('stop').onclick = () => state.session?.close();
$('interrupt').onclick = interrupt;
$('pause').onclick = () => setPaused(!state.isPaused);
$('play').onclick = play;
$('save').onclick = save;
$('load').onclick = () => $('load-file').click();
$('load-file').onchange = ({ target }) => {
  if (target.files[0]) load(target.files[0]);
  target.value = '';
};
$('zoom').onchange = ({ target }) => {
  timeline.shownS = Number(target.value);
  moveView(state.viewEndS);
};
$('position').oninput = ({ target }) => moveView(Number(target.value));
$('filter').oninput = ({ target }) => wires.setFilter({ words: target.value });
$('show-audio').onchange = ({ target }) => wires.setFilter({ audio: target.checked });
$('show-session').onchange = ({ target }) => wires.setFilter({ session: target.checked });

loadSettings().catch((error) => setStatus(`The server does not answer: ${error.message}`, 'failed'));
requestAnimationFrame(draw);
