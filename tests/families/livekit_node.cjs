// LiveKit Agents' plugins for Node, unmodified: node livekit_node.cjs PLUGIN CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// The plugins stand in `PLUGINS`; all options but address and key have their defaults. Prints one JSON object. Cells: transcription
// (two turns), error and close of speech to text; speech (two texts) and error of text to speech; conversation (two turns), error and
// close of models that hear and speak.
const fs = require("node:fs");
const agents = require("@livekit/agents");
const { AudioFrame } = require("@livekit/rtc-node");
const { run, sleep, writeWav } = require("./script.cjs");

const RATE = 16000;
const PIECE_MS = 20;
const PATIENCE_MS = 20000;
const ONE_ATTEMPT = { maxRetry: 0, retryIntervalMs: 1000, timeoutMs: 10000 };
const [plugin, cell, baseUrl, recording, heard, text] = process.argv.slice(2);
const wsUrl = baseUrl.replace(/^http/, "ws");

agents.initializeLogger({ pretty: false, level: "silent" });

// A plugin's class with address and key, to which a cell may add options.
function api(library, name, address) {
    return (options) => {
        const path = name.split(".");
        const service = path.reduce((found, part) => found[part], require(`@livekit/agents-plugin-${library}`));
        return new service({ apiKey: "any", ...address, ...options });
    };
}

const PLUGINS = {
    cartesia: api("cartesia", "STT", { baseUrl }),
    cartesia_tts: api("cartesia", "TTS", { baseUrl }),
    deepgram: api("deepgram", "STT", { baseUrl: wsUrl }),
    deepgram_flux: api("deepgram", "STTv2", { endpointUrl: `${wsUrl}/v2/listen` }),
    deepgram_tts: api("deepgram", "TTS", { baseUrl }),
    elevenlabs: api("elevenlabs", "STT", { baseURL: `${baseUrl}/v1`, model: "scribe_v2_realtime" }),
    elevenlabs_tts: api("elevenlabs", "TTS", { baseURL: `${baseUrl}/v1` }),
    gemini: api("google", "realtime.RealtimeModel", { httpOptions: { baseUrl } }),
    openai_realtime: api("openai", "realtime.RealtimeModel", { baseURL: `${baseUrl}/v1` }),
    openai_stt: api("openai", "STT", { baseURL: `${baseUrl}/v1`, useRealtime: true }),
};

// Options that the vendor does not have. The plugins for Cartesia keep errors to themselves.
const MISTAKES = {
    deepgram: { endpointing: -5 },
    deepgram_flux: { eotThreshold: 2 },
    deepgram_tts: { sampleRate: 7 },
    elevenlabs: { serverVad: { vadSilenceThresholdSecs: 99 } },
    elevenlabs_tts: { encoding: "pcm_7" },
    gemini: { temperature: 99 },
    openai_realtime: { turnDetection: { type: "server_vad", threshold: 9 } },
};

// The application says when a turn ends.
const FLUSHED = ["elevenlabs"];

// These wait until they are closed.
const OPEN_ENDED = ["elevenlabs", "openai_stt"];

const frameOf = (piece) => new AudioFrame(piece, RATE, 1, piece.length);

function* pieces() {
    const bytes = fs.readFileSync(recording).subarray(44);
    const samples = new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    const step = (RATE * PIECE_MS) / 1000;
    for (let at = 0; at < samples.length; at += step) yield samples.slice(at, at + step);
}

function* silence(ms) {
    for (let at = 0; at < ms; at += PIECE_MS) yield new Int16Array((RATE * PIECE_MS) / 1000);
}

// Sends audio as fast as speech, until there is enough.
async function send(push, audio, enough = () => false) {
    for (const piece of audio) {
        if (enough()) return;
        push(frameOf(piece));
        await sleep(PIECE_MS);
    }
}

// Whether a promise is fulfilled soon.
const withinPatience = (promise) => Promise.race([promise.then(() => true), sleep(8000).then(() => false)]);

// A stream of speech to text, and what its user sees.
class Listening {
    constructor(service) {
        this.service = service;
        this.errors = [];
        this.finals = [];
        this.interim = 0;
        service.on("error", ({ error }) => this.errors.push(String(error)));
        this.stream = service.stream({ connOptions: ONE_ATTEMPT });
        this.hasEnded = false;
        this.receiving = this.receive().then(() => (this.hasEnded = true));
    }

    async receive() {
        for await (const event of this.stream) {
            const words = event.alternatives?.[0]?.text?.trim();
            if (event.type === agents.stt.SpeechEventType.INTERIM_TRANSCRIPT) this.interim += 1;
            if (event.type === agents.stt.SpeechEventType.FINAL_TRANSCRIPT && words) this.finals.push(words);
        }
    }

    send(audio, enough = () => false) {
        return send((frame) => this.stream.pushFrame(frame), audio, () => enough() || this.hasEnded);
    }

    async turn() {
        const before = this.finals.length;
        await this.send(pieces());
        if (FLUSHED.includes(plugin)) {
            await this.send(silence(300));
            this.stream.flush();
        }
        await this.send(silence(PATIENCE_MS), () => this.finals.length > before || this.errors.length);
        await this.send(silence(1000));
        return this.finals.slice(before).join(" ");
    }

    // Whether the stream ends after its audio, without an error.
    async end() {
        let hasEnded = true;
        if (!OPEN_ENDED.includes(plugin)) {
            if (!this.hasEnded) this.stream.endInput();
            hasEnded = await withinPatience(this.receiving);
        }
        this.stream.close();
        return hasEnded && !this.errors.length;
    }
}

// A session of a model that hears and speaks.
class Conversation {
    constructor(model) {
        this.errors = [];
        this.session = model.session();
        this.session.on("error", ({ error }) => this.errors.push(String(error.cause ?? error)));
        this.session.on("input_audio_transcription_completed", ({ transcript }) => (this.user = transcript));
        this.session.on("generation_created", (generation) => this.play(generation));
        this.forget();
    }

    forget() {
        this.user = "";
        this.words = "";
        this.frames = [];
        this.hasAnswered = false;
    }

    async play(generation) {
        for await (const message of generation.messageStream) {
            const readText = async () => {
                for await (const words of message.textStream) this.words += words.text ?? words;
            };
            const readAudio = async () => {
                for await (const frame of message.audioStream) this.frames.push(frame);
            };
            await Promise.all([readText(), readAudio()]);
        }
        this.hasAnswered = true;
    }

    send(audio, enough = () => false) {
        return send((frame) => this.session.pushAudio(frame), audio, () => enough() || this.errors.length);
    }

    // Frames and words of an answer, and the words of the user.
    async ask() {
        this.forget();
        await this.send(pieces());
        await this.send(silence(PATIENCE_MS), () => this.hasAnswered);
        await this.send(silence(1000));
        return { frames: this.frames, words: this.words.trim(), user: this.user.trim() };
    }

    async end() {
        return (await withinPatience(this.session.close())) && !this.errors.length;
    }
}

function wholeOf(frames) {
    const samples = Buffer.concat(frames.map(({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength)));
    return { samples, seconds: samples.length / 2 / frames[0].sampleRate, rateHz: frames[0].sampleRate };
}

// Checks the audio of the first of two texts or answers, of which the second is to be this much longer, and keeps it.
function keep(first, second, factor) {
    const [whole, other] = [wholeOf(first), wholeOf(second)];
    if (Math.abs(other.seconds / whole.seconds - factor) > 0.3) throw new Error(`${whole.seconds} s and ${other.seconds} s`);
    writeWav(heard, whole.samples, whole.rateHz);
    return whole.seconds;
}

// The frames of a text that comes in pieces, as a model writes it.
async function say(service, text) {
    const stream = service.stream({ connOptions: ONE_ATTEMPT });
    for (const word of text.split(" ")) stream.pushText(`${word} `);
    stream.endInput();
    const frames = [];
    for await (const event of stream) {
        if (event === agents.tts.SynthesizeStream.END_OF_STREAM) break;
        frames.push(event.frame);
    }
    stream.close();
    return frames;
}

async function speak(service) {
    return { audio_s: keep(await say(service, text), await say(service, `${text} ${text}`), 2) };
}

async function transcribe(service) {
    const listening = new Listening(service);
    const turns = [await listening.turn(), await listening.turn()];
    if (!(await listening.end())) throw new Error(JSON.stringify([turns, listening.errors]));
    if (!listening.interim) throw new Error("no interim transcript");
    return { turns };
}

async function converse(model) {
    const conversation = new Conversation(model);
    const first = await conversation.ask();
    const second = await conversation.ask();
    if (!(await conversation.end())) throw new Error(conversation.errors.join());
    return { text: first.words, user: first.user, audio_s: keep(first.frames, second.frames, 1) };
}

async function fail(service) {
    const errors = [];
    if (service instanceof agents.tts.TTS) {
        service.on("error", ({ error }) => errors.push(String(error)));
        await say(service, text).catch((error) => errors.push(String(error)));
        for (let waited = 0; !errors.length && waited < PATIENCE_MS; waited += PIECE_MS) await sleep(PIECE_MS);
        return { error: errors.join("; ") };
    }
    const running = start(service);
    await running.send(silence(PATIENCE_MS), () => running.errors.length);
    return { error: running.errors.join("; ") };
}

async function close(service) {
    const running = start(service);
    await running.send(silence(1000));
    return { clean: await running.end(), errors: running.errors };
}

const start = (service) => (service instanceof agents.stt.STT ? new Listening(service) : new Conversation(service));
const CELLS = { close, conversation: converse, error: fail, speech: speak, transcription: transcribe };
run(() => CELLS[cell](PLUGINS[plugin](cell === "error" ? MISTAKES[plugin] : {})));
