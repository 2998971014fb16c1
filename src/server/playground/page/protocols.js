// The client protocols: how this page speaks each of them, and what their messages mean.
//
// A client encodes what the page sends: `open` are the first messages, `audio` takes int16 samples, `picture` a JPEG as base64;
// what a protocol cannot do is missing. In a call (`isCall`), sound is beside the messages. `meaning` tells of a message what happened: { kind, text?, who?, key?, audio?, given? }. The
// key is the protocol's name of the utterance, answer or call of a tool; `given` are a call's arguments.

import { base64Of } from './audio.js';

const json = (value) => JSON.stringify(value);
const bytes = (samples) => new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);

const macaw = {
  title: 'Macaw OpenVoice',
  inputHz: 16000,
  query: ({ model, language }) => ({ model, language, microphone: 'open', rollover_events: 'true' }),
  open: ({ voice }) => (voice ? [json({ type: 'session.configure', voice })] : []),
  audio: bytes,
  speak: (text, { voice }) => [json({ type: 'tts.speak', text, request_id: crypto.getRandomValues(new Uint32Array(1))[0].toString(36), ...(voice && { voice }) })],
  picture: (image) => [json({ type: 'video.frame', image })],
  interrupt: () => [json({ type: 'tts.cancel' })],
  close: () => [json({ type: 'session.close' })],
};

const openai = {
  title: 'OpenAI Realtime',
  hasCalls: true,
  inputHz: 24000,
  query: ({ model }) => ({ model }),
  open: ({ voice, language, isCall }) => [json({
    type: 'session.update',
    session: {
      type: 'realtime',
      audio: {
        input: {
          ...(!isCall && { format: { type: 'audio/pcm', rate: 24000 } }),
          transcription: { model: 'default', ...(language && { language }) },
          turn_detection: { type: 'server_vad' },
        },
        output: { ...(!isCall && { format: { type: 'audio/pcm', rate: 24000 } }), ...(voice && { voice }) },
      },
    },
  })],
  audio: (samples) => json({ type: 'input_audio_buffer.append', audio: base64Of(bytes(samples)) }),
  stopsAtSpeech: true,
  speakLabel: 'Ask',
  textLabel: 'Question to ask',
  speak: (text) => [
    json({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] } }),
    json({ type: 'response.create' }),
  ],
  picture: (image) => [json({
    type: 'conversation.item.create',
    item: { type: 'message', role: 'user', content: [{ type: 'input_image', image_url: `data:image/jpeg;base64,${image}` }] },
  })],
  interrupt: ({ isCall }) => [json({ type: 'response.cancel' }), ...(isCall ? [json({ type: 'output_audio_buffer.clear' })] : [])],
};

const vosk = {
  title: 'Vosk server',
  inputHz: 16000,
  query: ({ model, language }) => ({ model, language }),
  open: () => [json({ config: { sample_rate: 16000 } })],
  audio: bytes,
  // Every frame is answered, so that larger ones keep the traffic low.
  frameSamples: 1600,
  close: () => [json({ eof: 1 })],
};

const listen = {
  title: 'Deepgram: listen',
  inputHz: 16000,
  query: ({ model, language }) => ({
    model, language, encoding: 'linear16', sample_rate: '16000', interim_results: 'true', vad_events: 'true', utterance_end_ms: '1000',
  }),
  open: () => [],
  audio: bytes,
  close: () => [json({ type: 'CloseStream' })],
};

const speak = {
  title: 'Deepgram: speak',
  query: ({ model, voice }) => ({ model: voice || model, encoding: 'linear16', sample_rate: '24000' }),
  open: () => [],
  speak: (text) => [json({ type: 'Speak', text }), json({ type: 'Flush' })],
  interrupt: () => [json({ type: 'Clear' })],
  close: () => [json({ type: 'Close' })],
};

export const CLIENTS = {
  macaw, 'openai-realtime': openai, vosk, 'deepgram-listen': listen, 'deepgram-speak': speak,
};

const MEANINGS = {
  'vad.speech_start': () => ({ kind: 'speech-start' }),
  'vad.speech_end': () => ({ kind: 'speech-end' }),
  'transcript.partial': ({ text, speaker, segment_id: key }) => ({ kind: 'partial', text, who: whoOf(speaker), key }),
  'transcript.final': ({ text, speaker, segment_id: key }) => ({ kind: 'final', text, who: whoOf(speaker), key }),
  'tts.speak': ({ text }) => ({ kind: 'text', text }),
  'tts.cancel': () => ({ kind: 'interrupt' }),
  'tts.speaking_start': ({ text }) => ({ kind: 'speaking-start', text }),
  'tts.speaking_end': ({ cancelled }) => ({ kind: 'speaking-end', cancelled }),
  'input_audio_buffer.append': ({ audio }) => ({ kind: 'audio', audio }),
  'input_audio_buffer.speech_started': ({ item_id: key }) => ({ kind: 'speech-start', key }),
  'input_audio_buffer.speech_stopped': ({ item_id: key }) => ({ kind: 'speech-end', key }),
  'input_audio_buffer.committed': ({ item_id: key }) => ({ kind: 'committed', key }),
  'conversation.item.create': ({ item }) => (item?.type === 'function_call_output'
    ? { kind: 'tool-end', key: item.call_id, text: item.output }
    : { kind: 'text', text: item?.content?.[0]?.text, who: 'typed' }),
  'response.function_call_arguments.done': ({ call_id: key, name, arguments: given }) => ({ kind: 'tool-start', key, text: name, given }),
  'conversation.item.input_audio_transcription.delta': ({ delta, item_id: key }) => ({ kind: 'partial-delta', text: delta, who: 'user', key }),
  'conversation.item.input_audio_transcription.completed': ({ transcript, item_id: key }) => ({ kind: 'final', text: transcript, who: 'user', key }),
  'response.cancel': () => ({ kind: 'interrupt' }),
  'response.created': () => ({ kind: 'speaking-start' }),
  'response.output_audio.delta': ({ delta }) => ({ kind: 'audio', audio: delta }),
  'response.output_audio_transcript.delta': ({ delta, item_id: key }) => ({ kind: 'partial-delta', text: delta, who: 'model', key }),
  'response.output_audio_transcript.done': ({ transcript, item_id: key }) => ({ kind: 'final', text: transcript, who: 'model', key }),
  'response.done': ({ response }) => ({ kind: 'speaking-end', cancelled: response?.status === 'cancelled' }),
  SpeechStarted: () => ({ kind: 'speech-start' }),
  UtteranceEnd: () => ({ kind: 'speech-end' }),
  Results: ({ is_final: isFinal, channel }) => ({ kind: isFinal ? 'final' : 'partial', text: channel?.alternatives?.[0]?.transcript, who: 'user' }),
  Speak: ({ text }) => ({ kind: 'text', text }),
  Clear: () => ({ kind: 'interrupt' }),
  Flushed: () => ({ kind: 'speaking-end' }),
  Cleared: () => ({ kind: 'speaking-end', cancelled: true }),
  Error: ({ description }) => ({ kind: 'error', text: description }),
  Warning: ({ description }) => ({ kind: 'error', text: description }),
  // A device's own tools.
  mcp: ({ payload }) => deviceTool(payload ?? {}),
  error: ({ message, error }) => ({ kind: 'error', text: message ?? error?.message }),
};

function deviceTool({ id, method, params, result, error }) {
  const key = `device ${id}`;
  if (method === 'tools/call') return { kind: 'tool-start', key, text: params?.name, given: json(params?.arguments ?? {}) };
  const words = result?.content?.map(({ text, type }) => text ?? `(${type})`).join(' ');
  return method === undefined ? { kind: 'tool-end', key, text: words ?? error?.message ?? '', hasFailed: Boolean(error ?? result?.isError) } : {};
}

const whoOf = (speaker) => (speaker === 'assistant' ? 'model' : 'user');

// What a client's message, or one to a client, means; {} if nothing that the page shows.
export function meaning(message) {
  const known = typeof message.type === 'string' && Object.hasOwn(MEANINGS, message.type);
  if (known) return MEANINGS[message.type](message);
  if (typeof message.partial === 'string') return { kind: 'partial', text: message.partial, who: 'user' };
  if (message.type === undefined && typeof message.text === 'string') return { kind: 'final', text: message.text, who: 'user' };
  return {};
}
