// Vercel's AI SDK with OpenAI's Realtime API, unmodified: node ai_sdk.realtime.cjs CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// The SDK names the address and the headers, writes each command and reads each event. Prints one JSON object. Cells: conversation,
// interruption, error, close.
const { createOpenAI } = require("@ai-sdk/openai");
const WebSocket = require("ws");
const { run, sleep, speak, until, writeWav } = require("./script.cjs");

const RATE = 24000;
const [cell, baseUrl, recording, heard, text] = process.argv.slice(2);

// A connection, and what came.
class Talk {
    constructor() {
        this.model = createOpenAI({ apiKey: "any", baseURL: `${baseUrl}/v1` }).experimental_realtime("gpt-realtime");
        this.events = [];
    }

    async start() {
        const { url, headers } = await this.model.getServerWebSocketConfig();
        this.socket = new WebSocket(url, { headers });
        this.socket.on("message", (data) => this.events.push(...[this.model.parseServerEvent(JSON.parse(data))].flat()));
        this.socket.on("close", (code) => (this.code = code));
        await new Promise((resolve, reject) => this.socket.on("open", resolve).on("error", reject));
        const config = {
            instructions: "Answer briefly.",
            outputModalities: ["audio"],
            inputAudioFormat: { type: "audio/pcm", rate: RATE },
            inputAudioTranscription: {},
            outputAudioFormat: { type: "audio/pcm", rate: RATE },
            turnDetection: { type: "server-vad" },
        };
        await this.send({ type: "session-update", config });
        await until(() => this.of("session-updated").length);
    }

    async send(event) {
        this.socket.send(JSON.stringify(await this.model.serializeClientEvent(event)));
    }

    of(type) {
        return this.events.filter((event) => event.type === type);
    }

    // Speaks the recording, at this rate half as often as samples are needed.
    async say() {
        const doubled = (piece) => upsampled(piece).toString("base64");
        await speak(recording, (piece) => this.send({ type: "input-audio-append", audio: doubled(piece) }));
        await this.listen(1);
    }

    // Silence of the microphone.
    async listen(seconds) {
        for (let at = 0; at < seconds * 20; at += 1) {
            await this.send({ type: "input-audio-append", audio: Buffer.alloc(RATE / 10).toString("base64") });
            await sleep(50);
        }
    }

    audio(from = 0) {
        return Buffer.concat(this.of("audio-delta").slice(from).map((event) => Buffer.from(event.delta, "base64")));
    }
}

// 16 kHz as 24 kHz: linear between samples.
function upsampled(piece) {
    const samples = new Int16Array(piece.buffer, piece.byteOffset, piece.length / 2);
    const at = (place) => {
        const [before, share] = [Math.floor(place), place % 1];
        return samples[before] * (1 - share) + (samples[before + 1] ?? samples[before]) * share;
    };
    return Buffer.from(Int16Array.from({ length: samples.length * 1.5 }, (_, index) => at(index / 1.5)).buffer);
}

const seconds = (audio) => audio.length / 2 / RATE;

run(async () => {
    const talk = new Talk();
    await talk.start();
    if (cell === "error") {
        await talk.send({ type: "session-update", config: { turnDetection: { type: "server-vad", threshold: 9 } } });
        await until(() => talk.of("error").length);
        return { error: talk.of("error")[0].message };
    }
    if (cell === "close") {
        await talk.listen(1);
        talk.socket.close(1000);
        await until(() => talk.code !== undefined);
        return { clean: talk.code === 1000 && !talk.of("error").length };
    }
    if (cell === "interruption") {
        const item = { type: "text-message", role: "user", text: [text, text, text].join(" ") };
        await talk.send({ type: "conversation-item-create", item });
        await talk.send({ type: "response-create" });
        await until(() => talk.of("audio-delta").length);
        const [speaking] = [talk.say()];
        await until(() => talk.of("speech-started").length);
        const count = talk.of("audio-delta").length;
        await until(() => talk.of("response-done").length);
        const late = talk.audio(count);
        await speaking;
        const stopped = talk.of("response-done")[0].status === "cancelled";
        return { audio_s: seconds(talk.audio()) - seconds(late), stopped, late_audio_s: seconds(late) };
    }
    await talk.say();
    await until(() => talk.of("response-done").length && talk.of("input-transcription-completed").length, 40);
    if (talk.of("error").length) throw new Error(JSON.stringify(talk.of("error")));
    writeWav(heard, talk.audio(), RATE);
    const words = talk.of("audio-transcript-delta").map((event) => event.delta).join("");
    return { text: words, user: talk.of("input-transcription-completed")[0].transcript, audio_s: seconds(talk.audio()) };
});
