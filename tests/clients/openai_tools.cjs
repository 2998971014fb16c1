// Lets the model call a function through OpenAI's public library for JavaScript: node openai_tools.cjs CODE
//
// The code makes the client. The library always uses TLS. Prints what the function was called with, the answer and the length of
// its audio as JSON.
'use strict';

const OpenAI = require('openai');
const { OpenAIRealtimeWS } = require('openai/realtime/ws');
const { evaluate } = require('./readme_code.cjs');

const TOOL = {
  type: 'function',
  name: 'get_weather',
  description: 'Says the weather in a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

const came = { called: [], answer: '', audio_s: 0, errors: [] };
const realtime = new OpenAIRealtimeWS({ model: 'gpt-realtime' }, evaluate(process.argv[2], { OpenAI }));
realtime.on('error', (error) => came.errors.push(error.message));
realtime.socket.on('open', () => {
  realtime.send({ type: 'session.update', session: { type: 'realtime', tools: [TOOL] } });
  const content = [{ type: 'input_text', text: 'What is the weather in Rome?' }];
  realtime.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content } });
  realtime.send({ type: 'response.create' });
});
realtime.on('response.function_call_arguments.done', (event) => {
  const { city } = JSON.parse(event.arguments);
  came.called.push({ city });
  const item = { type: 'function_call_output', call_id: event.call_id, output: `sunny in ${city}` };
  realtime.send({ type: 'conversation.item.create', item });
});
realtime.on('response.output_audio.delta', ({ delta }) => (came.audio_s += Buffer.from(delta, 'base64').length / 48_000));
realtime.on('response.output_audio_transcript.done', ({ transcript }) => (came.answer = transcript));
realtime.on('response.done', ({ response }) => {
  if (response.output.some(({ type }) => type === 'function_call')) return realtime.send({ type: 'response.create' });
  console.log(JSON.stringify(came));
  realtime.close();
});
