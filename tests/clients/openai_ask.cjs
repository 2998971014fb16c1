// Types a question through OpenAI's public library for JavaScript, and prints the answer's text: node openai_ask.cjs PACKAGE CODE
//
// The code makes the client.
'use strict';

const { evaluate } = require('./readme_code.cjs');

const [packageName, code] = process.argv.slice(2);
const OpenAI = require(packageName);
const { OpenAIRealtimeWS } = require(`${packageName}/realtime/ws`);

const realtime = new OpenAIRealtimeWS({ model: 'gpt-realtime' }, evaluate(code, { OpenAI }));
realtime.on('error', (error) => {
  console.error(error);
  process.exit(1);
});
realtime.socket.on('open', () => {
  realtime.send({ type: 'session.update', session: { type: 'realtime', output_modalities: ['text'] } });
  const content = [{ type: 'input_text', text: 'Good morning.' }];
  realtime.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content } });
  realtime.send({ type: 'response.create' });
});
realtime.on('response.output_text.done', ({ text }) => {
  console.log(text);
  realtime.close();
});
