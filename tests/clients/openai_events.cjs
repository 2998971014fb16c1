// Provokes every server event, and checks each with the schema of OpenAI's agents library: node openai_events.cjs WS_URL
//
// The client's messages are in realtime_tour.json, where SPOKEN stands for the item that was heard last. Prints the events' types
// and the rejected events as JSON. An event that the library does not bear ends the process.
'use strict';

const path = require('node:path');

const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebSocket } = require('@openai/agents-realtime');
const steps = require('./realtime_tour.json');

// The schema is not exported.
const library = path.dirname(require.resolve('@openai/agents-realtime'));
const { realtimeServerEventSchema } = require(path.join(library, 'openaiRealtimeEvents.js'));

const PATIENCE_MS = 60_000;

// A tone of so many seconds, as a message.
function tone(seconds) {
  const audio = Buffer.alloc(24_000 * seconds * 2);
  for (let at = 0; at < audio.length / 2; at += 1) audio.writeInt16LE(Math.trunc(8000 * Math.sin(at / 10)), 2 * at);
  return { type: 'input_audio_buffer.append', audio: audio.toString('base64') };
}

async function main(url) {
  const transport = new OpenAIRealtimeWebSocket({ url: `${url}/v1/realtime?model=gpt-realtime` });
  const session = new RealtimeSession(new RealtimeAgent({ name: 'assistant' }), { transport, tracingDisabled: true });
  const [kinds, statuses, invalid, unread] = [[], [], [], []];
  let [wake, spoken] = [() => {}, ''];
  transport.on('*', (event) => {
    const parsed = realtimeServerEventSchema.safeParse(event);
    // The schema has no pictures, although the library sends them: it ignores their echo.
    const isPicture = event.item?.content?.[0]?.type === 'input_image';
    if (!parsed.success && !isPicture) invalid.push(`${JSON.stringify(event).slice(0, 400)}: ${parsed.error}`);
    kinds.push(event.type);
    if (event.type === 'response.done') statuses.push(event.response.status);
    if (event.type === 'response.output_audio.delta') spoken = event.item_id;
    unread.push(event.type);
    wake();
  });
  session.on('error', () => {});
  await session.connect({ apiKey: 'a key' });
  for (const step of steps) {
    // Past the library, which holds back a second request for a response.
    const message = JSON.stringify(step.tone_s ? tone(step.tone_s) : step.send);
    transport.connectionState.websocket.send(message.replace('SPOKEN', spoken));
    while (step.await && unread.shift() !== step.await) {
      if (unread.length === 0) await new Promise((resolve) => (wake = resolve));
    }
  }
  session.close();
  return { kinds: [...new Set(kinds)].sort(), statuses, invalid };
}

setTimeout(() => {
  console.error('it takes too long');
  process.exit(1);
}, PATIENCE_MS).unref();
main(process.argv[2]).then((report) => process.stdout.write(JSON.stringify(report), () => process.exit(0)));
