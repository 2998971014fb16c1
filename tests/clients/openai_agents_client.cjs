// Talks through OpenAI's public agents library for JavaScript:
// node openai_agents_client.cjs CODE RECORDING.wav RECORDING.wav RECORDING.wav
//
// The code is the session's option `transport`. Prints the talk as JSON, the library's own history of it, and `invalid`: the events that the library's schema rejects.
'use strict';

const path = require('node:path');

const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebSocket } = require('@openai/agents-realtime');
const { evaluate } = require('./readme_code.cjs');
const { PICTURE_URL, Talk, main } = require('./realtime_talk.cjs');

// The schema is not exported.
const library = path.dirname(require.resolve('@openai/agents-realtime'));
const { realtimeServerEventSchema } = require(path.join(library, 'openaiRealtimeEvents.js'));

async function run(code, questions) {
  const { transport } = evaluate(`({ ${code} })`, { OpenAIRealtimeWebSocket });
  const agent = new RealtimeAgent({ name: 'assistant', instructions: 'Answer briefly.' });
  const session = new RealtimeSession(agent, {
    transport,
    model: 'gpt-realtime',
    tracingDisabled: true,
    config: { audio: { input: { turnDetection: { type: 'server_vad', interruptResponse: true } } } },
  });
  const talk = new Talk((audio) => session.sendAudio(audio.buffer.slice(audio.byteOffset, audio.byteOffset + audio.length)));
  const invalid = [];
  let interrupted = 0;
  transport.on('*', (event) => {
    const parsed = realtimeServerEventSchema.safeParse(event);
    // The schema has no pictures, although the library sends them: it ignores their echo.
    const isPicture = event.item?.content?.[0]?.type === 'input_image';
    if (!parsed.success && !isPicture) invalid.push(`${JSON.stringify(event).slice(0, 300)}: ${parsed.error}`);
    talk.noteEvent(event.type);
    if (event.type === 'response.done') talk.endAnswer(event.response.status);
    if (event.type === 'conversation.item.input_audio_transcription.completed') talk.noteUser(event.transcript);
  });
  transport.on('turn_started', () => talk.beginAnswer());
  transport.on('audio_transcript_delta', ({ delta }) => talk.noteText(delta));
  transport.on('audio', ({ data }) => talk.noteAudio(data.byteLength));
  session.on('audio_interrupted', () => (interrupted += 1));
  session.on('error', ({ error }) => talk.noteError(error));
  await session.connect({ apiKey: 'a key' });
  session.addImage(PICTURE_URL, { triggerResponse: false });
  await talk.hold(questions);
  const { websocket } = transport.connectionState;
  const closed = new Promise((resolve) => websocket.addEventListener('close', resolve));
  session.close();
  const { code: closeCode } = await closed;
  const history = session.history.map((item) => [item.role, item.content.map((part) => part.transcript ?? part.text)]);
  return { ...talk.report(), history, interrupted, invalid, close_code: closeCode };
}

main(run);
