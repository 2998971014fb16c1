// Uploads a recording and has texts spoken with OpenAI's or Deepgram's library for Node:
// node rest_client.cjs PACKAGE CODE RECORDING.wav
// The code makes Deepgram's client; for OpenAI's, it is Python's argument `base_url`. Prints the texts, the lengths of the spoken audio in bytes and the errors as JSON.

const fs = require("fs");
const { evaluate } = require("./readme_code.cjs");

const TEXT = "The train to London leaves at half past nine.";

async function openai(code, path) {
  const { OpenAI, BadRequestError, toFile } = require("openai");
  const client = new OpenAI({ baseURL: JSON.parse(code.split("=")[1]), apiKey: "a key", maxRetries: 0 });
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

async function deepgram(name, code, path) {
  const client = evaluate(code, require(name));
  const heard = await client.listen.v1.media.transcribeFile(fs.createReadStream(path), { model: "nova-3" });
  const spoken = await client.speak.v1.audio.generate({ text: TEXT, model: "aura-2-thalia-en" });
  return {
    texts: { transcript: heard.results.channels[0].alternatives[0].transcript },
    spoken: { default: (await spoken.arrayBuffer()).byteLength },
  };
}

// Versions 3 and 4.
async function deepgram3(name, code, path) {
  const client = evaluate(code, require(name));
  const heard = await client.listen.prerecorded.transcribeFile(fs.readFileSync(path), { model: "nova-3" });
  if (heard.error) throw heard.error;
  const spoken = await client.speak.request({ text: TEXT }, { model: "aura-2-thalia-en" });
  return {
    texts: { transcript: heard.result.results.channels[0].alternatives[0].transcript },
    spoken: { default: (await new Response(await spoken.getStream()).arrayBuffer()).byteLength },
  };
}

const [name, code, path] = process.argv.slice(2);
const deepgramOf = /^deepgram-[34]\./.test(name) ? deepgram3 : deepgram;
(name === "openai" ? openai(code, path) : deepgramOf(name, code, path)).then((result) =>
  console.log(JSON.stringify(result)),
);
