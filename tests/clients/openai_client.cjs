// Talks through OpenAI's public library for JavaScript: node openai_client.cjs SERVICE CODE RECORDING.wav RECORDING.wav RECORDING.wav
//
// SERVICE `realtime` talks with the model, and `transcription` only transcribes. The code makes the client. The library always uses TLS. Prints the talk as
// JSON.
'use strict';

const OpenAI = require('openai');
const { OpenAIRealtimeWS } = require('openai/realtime/ws');
const { evaluate } = require('./readme_code.cjs');
const { PICTURE_URL, Talk, main } = require('./realtime_talk.cjs');

const SESSION = {
  type: 'realtime',
  instructions: 'Answer briefly.',
  audio: {
    input: {
      format: { type: 'audio/pcm', rate: 24_000 },
      transcription: { model: 'gpt-4o-mini-transcribe' },
      turn_detection: { type: 'server_vad', interrupt_response: true },
    },
    output: { format: { type: 'audio/pcm', rate: 24_000 }, voice: 'marin' },
  },
};

const TRANSCRIPTION_SESSION = { type: 'transcription', audio: { input: SESSION.audio.input } };

const [service] = process.argv.splice(2, 1);

async function run(code, questions) {
  const client = evaluate(code, { OpenAI });
  const isTranscription = service === 'transcription';
  const target = isTranscription ? { intent: 'transcription' } : { model: 'gpt-realtime' };
  const realtime = new OpenAIRealtimeWS(target, client);
  await new Promise((resolve, reject) => realtime.socket.on('open', resolve).on('error', reject));
  const talk = new Talk((audio) => realtime.send({ type: 'input_audio_buffer.append', audio: audio.toString('base64') }));
  realtime.on('event', ({ type }) => talk.noteEvent(type));
  realtime.on('error', (error) => talk.noteError(error.message));
  realtime.on('conversation.item.input_audio_transcription.completed', ({ transcript }) => talk.noteUser(transcript));
  realtime.on('response.created', () => talk.beginAnswer());
  realtime.on('response.output_audio.delta', ({ delta }) => talk.noteAudio(Buffer.from(delta, 'base64').length));
  realtime.on('response.output_audio_transcript.delta', ({ delta }) => talk.noteText(delta));
  realtime.on('response.done', ({ response }) => talk.endAnswer(response.status));
  if (isTranscription) {
    realtime.send({ type: 'session.update', session: TRANSCRIPTION_SESSION });
    await talk.transcribe(questions);
  } else {
    realtime.send({ type: 'session.update', session: SESSION });
    const content = [{ type: 'input_image', image_url: PICTURE_URL }];
    realtime.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content } });
    await talk.hold(questions);
  }
  const closed = new Promise((resolve) => realtime.socket.on('close', resolve));
  realtime.close();
  return { ...talk.report(), close_code: await closed };
}

main(run);
