// Sound: sample formats, the sources that can be sent, and playback.

const FRAME_S = 0.02;

export const toInt16 = (samples) =>
  Int16Array.from(samples, (sample) => Math.max(-32768, Math.min(32767, Math.round(sample * 32767))));

export function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}

export function base64Of(bytes) {
  let text = '';
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

// int16, little endian. An odd byte at the end is left out.
export const int16Of = (bytes) =>
  new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length - (bytes.length % 2)));

export function floatsOfInt16(samples) {
  const floats = new Float32Array(samples.length);
  for (let at = 0; at < samples.length; at += 1) floats[at] = samples[at] / 32768;
  return floats;
}

export const floatsOf = (bytes) =>
  new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length - (bytes.length % 4)));

// Lowers the rate of a stream by averaging, which also removes what the lower rate cannot hold; raises it by repeating.
class RateConverter {
  constructor(fromHz, toHz) {
    this.step = fromHz / toHz;
    this.rest = [];
    this.at = 0;
  }

  convert(block) {
    const samples = Float32Array.from([...this.rest, ...block]);
    const out = [];
    while (this.at + this.step <= samples.length) {
      const from = Math.floor(this.at);
      const to = Math.max(from + 1, Math.floor(this.at + this.step));
      let sum = 0;
      for (let index = from; index < to; index += 1) sum += samples[index];
      out.push(sum / (to - from));
      this.at += this.step;
    }
    const used = Math.floor(this.at);
    this.rest = samples.subarray(used);
    this.at -= used;
    return out;
  }
}

const openMicrophone = () => navigator.mediaDevices.getUserMedia({
  audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 },
});

const stopTracks = (media) => media.getTracks().forEach((track) => track.stop());

// Sends the microphone's sound. `send` gets int16 samples at `rateHz`. Returns a function that stops it.
export async function sendMicrophone(context, rateHz, send) {
  const media = await openMicrophone();
  await context.audioWorklet.addModule(new URL('capture.js', import.meta.url));
  const source = context.createMediaStreamSource(media);
  const capture = new AudioWorkletNode(context, 'capture', { numberOfOutputs: 0 });
  const converter = new RateConverter(context.sampleRate, rateHz);
  capture.port.onmessage = ({ data }) => send(toInt16(converter.convert(data)));
  source.connect(capture);
  return () => {
    source.disconnect();
    capture.port.onmessage = null;
    stopTracks(media);
  };
}

// Sends a call's track, or stops it if the call has ended meanwhile.
async function sendOrStop(media, send) {
  try {
    await send(media.getAudioTracks()[0]);
  } catch (error) {
    stopTracks(media);
    throw error;
  }
}

// Sends the microphone as a call's track. Returns a function that stops it.
export async function sendMicrophoneTrack(send) {
  const media = await openMicrophone();
  await sendOrStop(media, send);
  return () => stopTracks(media);
}

// Sends a file's sound as a call's track, and silence after it. Returns a function that stops it.
export async function sendFileTrack(context, data, send) {
  const source = context.createBufferSource();
  source.buffer = await context.decodeAudioData(data);
  const { stream } = source.connect(context.createMediaStreamDestination());
  await sendOrStop(stream, send);
  source.start();
  return () => {
    source.stop();
    stopTracks(stream);
  };
}

// Sends a file's sound at the pace of a microphone, and silence after it. Returns a function that stops it.
export async function sendFile(context, data, rateHz, send) {
  const decoded = await context.decodeAudioData(data);
  const offline = new OfflineAudioContext(1, Math.ceil(decoded.duration * rateHz), rateHz);
  const source = offline.createBufferSource();
  source.buffer = decoded;
  source.connect(offline.destination);
  source.start();
  const rendered = await offline.startRendering();
  const samples = toInt16(rendered.getChannelData(0));
  const size = Math.round(rateHz * FRAME_S);
  const startedAt = performance.now();
  let frames = 0;
  const timer = setInterval(() => {
    const due = Math.floor((performance.now() - startedAt) / 1000 / FRAME_S);
    for (; frames < due; frames += 1) {
      const frame = new Int16Array(size);
      frame.set(samples.subarray(frames * size, (frames + 1) * size));
      send(frame);
    }
  }, FRAME_S * 1000);
  return () => clearInterval(timer);
}

// Plays sound without gaps, and stops it at once.
export class Player {
  constructor(context) {
    this.context = context;
    this.endsAt = 0;
    this.playing = new Set();
  }

  get isPlaying() {
    return this.playing.size > 0;
  }

  push(samples, rateHz) {
    const now = this.context.currentTime;
    // A short lead absorbs late frames.
    const at = this.endsAt > now ? this.endsAt : now + 0.05;
    this.playAt(samples, rateHz, at);
    this.endsAt = at + samples.length / rateHz;
  }

  playAt(samples, rateHz, at, from = 0) {
    if (samples.length === 0) return;
    const buffer = this.context.createBuffer(1, samples.length, rateHz);
    buffer.copyToChannel(samples, 0);
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    source.onended = () => this.playing.delete(source);
    this.playing.add(source);
    source.start(at, from);
  }

  stop() {
    for (const source of this.playing) {
      source.onended = null;
      source.stop();
    }
    this.playing.clear();
    this.endsAt = 0;
  }
}
