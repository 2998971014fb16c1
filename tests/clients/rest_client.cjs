// Uploads a recording and has texts spoken with OpenAI's or Deepgram's library for Node:
// node rest_client.cjs openai|deepgram-5.13.0 HTTP_URL RECORDING.wav
// Prints the texts, the lengths of the spoken audio in bytes and the errors as JSON.

const fs = require("fs");

const TEXT = "The train to London leaves at half past nine.";

async function openai(url, path) {
  const { OpenAI, BadRequestError, toFile } = require("openai");
  const client = new OpenAI({ baseURL: url + "/v1", apiKey: "a key", maxRetries: 0 });
  const texts = {};
  const spoken = {};
  const errors = {};
  const create = (more) =>
    client.audio.transcriptions.create({ model: "whisper-1", file: fs.createReadStream(path), ...more });
  texts.json = (await create({ language: "en" })).text;
  texts.verbose_json = (await create({ response_format: "verbose_json" })).text;
  texts.srt = await create({ response_format: "srt" });
  let streamed = "";
  for await (const event of await create({ stream: true, model: "gpt-4o-transcribe" })) {
    if (event.type === "transcript.text.delta") streamed += event.delta;
  }
  texts.events = streamed;
  texts.translation = (
    await client.audio.translations.create({ model: "whisper-1", file: await toFile(fs.readFileSync(path), "x.ogg") })
  ).text;
  for (const response_format of [undefined, "opus", "pcm"]) {
    const answer = await client.audio.speech.create({ model: "tts-1", voice: "alloy", input: TEXT, response_format });
    spoken[response_format ?? "default"] = (await answer.arrayBuffer()).byteLength;
  }
  for await (const model of client.models.list()) texts.model = model.id;
  try {
    await create({ file: await toFile(Buffer.from("this is no audio"), "x.mp3") });
  } catch (error) {
    errors["no audio"] = error instanceof BadRequestError ? error.type : String(error);
  }
  return { texts, spoken, errors };
}

async function deepgram(version, url, path) {
  const { DeepgramClient } = require(version);
  const environment = { base: url, production: url, agent: url, agentRest: url };
  const client = new DeepgramClient({ apiKey: "a key", environment });
  const heard = await client.listen.v1.media.transcribeFile(fs.createReadStream(path), { model: "nova-3" });
  const spoken = await client.speak.v1.audio.generate({ text: TEXT, model: "aura-2-thalia-en" });
  return {
    texts: { transcript: heard.results.channels[0].alternatives[0].transcript },
    spoken: { default: (await spoken.arrayBuffer()).byteLength },
  };
}

const [name, url, path] = process.argv.slice(2);
(name === "openai" ? openai(url, path) : deepgram(name, url, path)).then((result) =>
  console.log(JSON.stringify(result)),
);
