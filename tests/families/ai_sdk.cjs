// Vercel's AI SDK with OpenAI's Live API, unmodified: node ai_sdk.cjs CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// Its server-owned connection: the SDK names the address and the headers, writes each command and reads each event. Prints one JSON
// object. Cells: conversation, error, close.
const { createOpenAI } = require("@ai-sdk/openai");
const WebSocket = require("ws");
const { run, sleep, speak, writeWav } = require("./script.cjs");

const RATE = 16000;
const PATIENCE_MS = 25_000;
const [cell, baseUrl, recording, heard] = process.argv.slice(2);

class Talk {
    constructor() {
        this.model = createOpenAI({ apiKey: "any", baseURL: `${baseUrl}/v1` }).experimental_realtime("gpt-live-1");
        this.events = [];
        this.isClosed = false;
    }

    async start() {
        const { url, headers } = await this.model.getServerWebSocketConfig();
        const parse = this.model.createServerEventParser();
        this.socket = new WebSocket(url, { headers });
        this.socket.on("message", (data) => this.events.push(...parse(JSON.parse(data))));
        this.socket.on("close", () => (this.isClosed = true));
        await new Promise((resolve, reject) => this.socket.on("open", resolve).on("error", reject));
        const format = { type: "audio/pcm", rate: RATE };
        this.send({ type: "session-start", config: { instructions: "Answer briefly.", inputAudioFormat: format, outputAudioFormat: format } });
        await this.until(() => this.of("session-started").length, "start");
    }

    send(event) {
        this.socket.send(JSON.stringify(this.model.serializeClientEvent(event)));
    }

    sendAudio(piece) {
        this.send({ type: "input-audio-append", audio: piece.toString("base64") });
    }

    of(type) {
        return this.events.filter((event) => event.type === type);
    }

    words(speaker) {
        return this.of("transcript-fragment").filter((it) => it.speaker === speaker).map((it) => it.delta).join("");
    }

    // Waits, with silence of the microphone.
    async until(isMet, what) {
        for (const end = Date.now() + PATIENCE_MS; !isMet(); await sleep(50)) {
            if (Date.now() > end) throw new Error(`no ${what}: ${JSON.stringify(this.events.slice(-5))}`);
            if (this.of("session-started").length && !this.isClosed) this.sendAudio(Buffer.alloc(RATE / 10));
        }
    }

    async close() {
        this.send({ type: "session-close" });
        await this.until(() => this.of("session-closed").length && this.isClosed, "end");
        return this.of("session-closed")[0].reason === "close_requested";
    }
}

run(async () => {
    const talk = new Talk();
    await talk.start();
    if (cell === "error") {
        talk.send({ type: "context-append", content: "Done.", delegationId: "item_1" });
        await talk.until(() => talk.of("error").length, "error");
        return { error: talk.of("error")[0].message };
    }
    if (cell === "close") {
        talk.send({ type: "context-append", content: "The user is in a hurry.", delegationId: null, eventId: "mine" });
        await talk.until(() => talk.of("command-acknowledged").some((it) => it.clientEventId === "mine"), "acknowledgement");
        return { clean: (await talk.close()) && talk.of("error").length === 0 };
    }
    await speak(recording, (piece) => talk.sendAudio(piece));
    let [chunks, quiet] = [0, 0];
    await talk.until(() => {
        const now = talk.of("audio-chunk").length;
        quiet = now && now === chunks ? quiet + 1 : 0;
        chunks = now;
        return quiet > 25 && talk.words("user");
    }, "answer");
    await talk.close();
    const audio = Buffer.concat(talk.of("audio-chunk").map((it) => Buffer.from(it.delta, "base64")));
    writeWav(heard, audio, RATE);
    if (talk.of("error").length) throw new Error(JSON.stringify(talk.of("error")));
    return { text: talk.words("assistant"), user: talk.words("user"), audio_s: audio.length / 2 / RATE };
});
