// Lets the model call tools of a server that the client names, through OpenAI's public agents library for JavaScript:
// node openai_agents_mcp.cjs CODE URL
//
// The code is the session's option `transport`, the URL the server's. One tool needs the client's approval. The library itself asks
// for the next response after each call. Prints the listed tools, the calls with their results, the approved tools and the answers as
// JSON, and `invalid`: the events that the library's schema rejects.
'use strict';

const path = require('node:path');

const { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebSocket } = require('@openai/agents-realtime');
const { hostedMcpTool } = require('@openai/agents-core');
const { evaluate } = require('./readme_code.cjs');

// The schema is not exported.
const library = path.dirname(require.resolve('@openai/agents-realtime'));
const { realtimeServerEventSchema } = require(path.join(library, 'openaiRealtimeEvents.js'));

const QUESTIONS = ['How warm is it in the hall?', 'What does the header say?'];

async function run(code, url) {
  const came = { listed: [], called: [], approved: [], answers: [], errors: [], invalid: [] };
  const server = hostedMcpTool({
    serverLabel: 'house',
    serverUrl: url,
    // The library passes on no `authorization` in sessions of this kind.
    headers: { Authorization: 'Bearer secret-token' },
    allowedTools: ['temperature', 'header'],
    requireApproval: { never: { toolNames: ['temperature'] }, always: { toolNames: ['header'] } },
  });
  const { transport } = evaluate(`({ ${code} })`, { OpenAIRealtimeWebSocket });
  const agent = new RealtimeAgent({ name: 'assistant', instructions: 'Answer briefly.', tools: [server] });
  const session = new RealtimeSession(agent, { transport, model: 'gpt-realtime', tracingDisabled: true });
  const questions = [...QUESTIONS];
  const answered = new Promise((resolve) => {
    transport.on('*', (event) => {
      const parsed = realtimeServerEventSchema.safeParse(event);
      if (!parsed.success) came.invalid.push(`${JSON.stringify(event).slice(0, 300)}: ${parsed.error}`);
      const [output] = event.type === 'response.done' ? event.response.output : [];
      if (output?.type !== 'message') return;
      came.answers.push(output.content[0].transcript);
      if (questions.length) session.sendMessage(questions.shift());
      else resolve();
    });
  });
  session.on('mcp_tools_changed', (tools) => {
    came.listed = tools.map(({ name }) => name);
    if (questions.length === QUESTIONS.length) session.sendMessage(questions.shift());
  });
  session.on('mcp_tool_call_completed', (_context, _agent, { name, arguments: given, output }) => {
    came.called.push(['house', name, JSON.parse(given), output]);
  });
  session.on('tool_approval_requested', (_context, _agent, { approvalItem }) => {
    came.approved.push([approvalItem.rawItem.name, JSON.parse(approvalItem.rawItem.arguments)]);
    session.approve(approvalItem);
  });
  session.on('error', ({ error }) => came.errors.push(String(error?.message ?? JSON.stringify(error))));
  await session.connect({ apiKey: 'a key' });
  await answered;
  session.close();
  return came;
}

run(...process.argv.slice(2, 4)).then((came) => {
  console.log(JSON.stringify(came));
  process.exit(0);
});
