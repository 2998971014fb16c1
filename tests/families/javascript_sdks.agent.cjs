// Deepgram's public library for JavaScript with its Voice Agent, unmodified:
// node javascript_sdks.agent.cjs CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// Prints one JSON object. Cells: conversation, interruption, speech, error, close.
const { DeepgramClient } = require("@deepgram/sdk");
const { run, sleep, speak, until, writeWav } = require("./script.cjs");

const [IN_HZ, OUT_HZ] = [16000, 24000];
const [cell, baseUrl, recording, heard, text] = process.argv.slice(2);
const WEATHER = {
    name: "get_weather",
    description: "The weather of a place.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

// A connection, and what came.
class Talk {
    constructor() {
        this.events = [];
        this.audio = [];
    }

    static async open({ encoding = "linear16", greeting } = {}) {
        const talk = new Talk();
        const ws = baseUrl.replace(/^http/, "ws");
        const environment = { base: baseUrl, production: ws, agent: ws, agentRest: baseUrl };
        const connection = await new DeepgramClient({ apiKey: "any", environment }).agent.v1.connect({});
        talk.connection = connection;
        connection.on("message", (message) => talk.note(message));
        connection.on("close", () => (talk.isClosed = true));
        connection.connect();
        await connection.waitForOpen();
        connection.socket.binaryType = "arraybuffer";
        await talk.until("Welcome");
        const [input, output] = [{ encoding, sample_rate: IN_HZ }, { encoding: "linear16", sample_rate: OUT_HZ, container: "none" }];
        connection.sendSettings({
            type: "Settings",
            audio: { input, output },
            agent: {
                listen: { provider: { type: "deepgram", version: "v2", model: "flux-general-en" } },
                think: { provider: { type: "open_ai", model: "gpt-4o-mini" }, prompt: "Answer in one sentence.", functions: [WEATHER] },
                speak: { provider: { type: "deepgram", model: "aura-2-thalia-en" } },
                greeting,
            },
        });
        return talk;
    }

    note(message) {
        if (typeof message !== "object" || message instanceof ArrayBuffer || message instanceof Blob) this.audio.push(message);
        else this.events.push(message);
    }

    of(type) {
        return this.events.filter((event) => event.type === type);
    }

    // The next message of this type beyond so many.
    async until(type, count = 0) {
        await until(() => this.of(type).length > count || (type !== "Error" && this.of("Error").length), 30);
        if (type !== "Error" && this.of("Error").length) throw new Error(JSON.stringify(this.of("Error")));
        return this.of(type)[count];
    }

    words(role) {
        return this.of("ConversationText").filter((event) => event.role === role).map((event) => event.content).join(" ");
    }

    // The audio that came from so many pieces on.
    async samples(from = 0) {
        const bytes = async (piece) => Buffer.from(piece instanceof Blob ? await piece.arrayBuffer() : piece);
        return Buffer.concat(await Promise.all(this.audio.slice(from).map(bytes)));
    }

    // Speaks the recording, and is silent until the returned function is called.
    say() {
        let isOver = false;
        const send = (piece) => isOver || this.connection.sendMedia(piece);
        (async () => {
            await speak(recording, send);
            for (; !isOver; await sleep(50)) send(Buffer.alloc(IN_HZ / 10));
        })();
        return () => (isOver = true);
    }
}

const seconds = (audio) => audio.length / 2 / OUT_HZ;

async function conversation() {
    const talk = await Talk.open();
    await talk.until("SettingsApplied");
    const stop = talk.say();
    await talk.until("AgentAudioDone");
    await until(() => talk.words("assistant"), 10);
    stop();
    const audio = await talk.samples();
    const [words, user] = [talk.words("assistant"), talk.words("user")];
    const order = ["UserStartedSpeaking", "AgentThinking", "AgentStartedSpeaking", "AgentAudioDone"];
    const kinds = talk.events.map((event) => event.type).filter((type) => order.includes(type));
    if (kinds.join() !== order.join()) throw new Error(kinds.join());
    talk.connection.sendUpdatePrompt({ type: "UpdatePrompt", prompt: "Answer in two sentences." });
    await talk.until("PromptUpdated");
    talk.connection.sendInjectUserMessage({ type: "InjectUserMessage", content: "What is the weather in Rome?" });
    const [{ id, name, arguments: call }] = (await talk.until("FunctionCallRequest")).functions;
    const content = `sunny in ${JSON.parse(call).city}`;
    talk.connection.sendFunctionCallResponse({ type: "FunctionCallResponse", id, name, content });
    await talk.until("AgentAudioDone", 1);
    await until(() => talk.words("assistant").includes("sunny in Rome"), 10);
    writeWav(heard, audio, OUT_HZ);
    return { text: words, user, audio_s: seconds(audio) };
}

async function interruption() {
    const talk = await Talk.open();
    await talk.until("SettingsApplied");
    talk.connection.sendInjectUserMessage({ type: "InjectUserMessage", content: text });
    await until(() => talk.audio.length, 30);
    const stop = talk.say();
    await talk.until("UserStartedSpeaking");
    const count = talk.audio.length;
    await talk.until("AgentThinking", talk.of("AgentThinking").length);
    stop();
    const [whole, late] = [await talk.samples(), await talk.samples(count)];
    return { audio_s: seconds(whole) - seconds(late), stopped: true, late_audio_s: seconds(late) };
}

// The greeting, and a message for the agent to say.
async function speech() {
    const talk = await Talk.open({ greeting: text });
    await talk.until("AgentAudioDone");
    const audio = await talk.samples();
    talk.connection.sendInjectAgentMessage({ type: "InjectAgentMessage", message: "One more thing." });
    await talk.until("AgentAudioDone", 1);
    if (talk.words("assistant") !== `${text} One more thing.`) throw new Error(talk.words("assistant"));
    writeWav(heard, audio, OUT_HZ);
    return { audio_s: seconds(audio) };
}

async function error() {
    const talk = await Talk.open({ encoding: "speex" });
    const { code, description } = await talk.until("Error");
    return { error: `${code}: ${description}` };
}

async function close() {
    const talk = await Talk.open();
    await talk.until("SettingsApplied");
    talk.connection.close();
    await until(() => talk.isClosed, 10);
    return { clean: !talk.of("Error").length };
}

run({ conversation, interruption, speech, error, close }[cell]);
