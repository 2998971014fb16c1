// Lets the model call a function through OpenAI's public agents library for JavaScript: node openai_agents_tools.cjs CODE
//
// The code is the session's option `transport`. Prints what the function was called with, the answer and the length of its audio
// as JSON, and `invalid`: the events that the library's schema rejects.
'use strict';

const path = require('node:path');

const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebSocket, tool } = require('@openai/agents-realtime');
const { z } = require('zod');
const { evaluate } = require('./readme_code.cjs');

// The schema is not exported.
const library = path.dirname(require.resolve('@openai/agents-realtime'));
const { realtimeServerEventSchema } = require(path.join(library, 'openaiRealtimeEvents.js'));

async function run(code) {
  const came = { called: [], answer: '', audio_s: 0, errors: [], invalid: [] };
  const weather = tool({
    name: 'get_weather',
    description: 'Says the weather in a city.',
    parameters: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      came.called.push({ city });
      return `sunny in ${city}`;
    },
  });
  const { transport } = evaluate(`({ ${code} })`, { OpenAIRealtimeWebSocket });
  const agent = new RealtimeAgent({ name: 'assistant', instructions: 'Answer briefly.', tools: [weather] });
  const session = new RealtimeSession(agent, { transport, model: 'gpt-realtime', tracingDisabled: true });
  const answered = new Promise((resolve) => {
    transport.on('*', (event) => {
      const parsed = realtimeServerEventSchema.safeParse(event);
      if (!parsed.success) came.invalid.push(`${JSON.stringify(event).slice(0, 300)}: ${parsed.error}`);
      if (event.type === 'response.done' && event.response.output[0]?.type === 'message') resolve();
    });
  });
  transport.on('audio_transcript_delta', ({ delta }) => (came.answer += delta));
  transport.on('audio', ({ data }) => (came.audio_s += data.byteLength / 48_000));
  session.on('error', ({ error }) => came.errors.push(String(error?.message ?? JSON.stringify(error))));
  await session.connect({ apiKey: 'a key' });
  session.sendMessage('What is the weather in Rome?');
  await answered;
  session.close();
  return came;
}

run(process.argv[2]).then((came) => {
  console.log(JSON.stringify(came));
  process.exit(0);
});
