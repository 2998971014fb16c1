// Vendors' public libraries for JavaScript, unmodified: node javascript_sdks.cjs VENDOR CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// Prints one JSON object. Vendors and cells: speechmatics, elevenlabs and cartesia_turns: transcription, error and close;
// cartesia_speak: speech.
const { run, speak, until, writeWav } = require("./script.cjs");

const RATE = 24000;
const [vendor, cell, baseUrl, recording, heard, text] = process.argv.slice(2);
const wsUrl = baseUrl.replace(/^http/, "ws");

async function speechmatics() {
    const { RealtimeClient } = require("@speechmatics/real-time-client");
    const client = new RealtimeClient({ url: `${wsUrl}/v2` });
    const words = [];
    let partials = 0;
    client.addEventListener("receiveMessage", ({ data }) => {
        if (data.message === "AddTranscript") words.push(data.metadata.transcript);
        if (data.message === "AddPartialTranscript") partials += 1;
    });
    const encoding = cell === "error" ? "pcm_s24le" : "pcm_s16le";
    const settings = {
        transcription_config: { language: "en", enable_partials: true },
        audio_format: { type: "raw", encoding, sample_rate: 16000 },
    };
    if (cell === "error") {
        return client.start("any", settings).then(() => ({}), (error) => ({ error: `${error.message} ${error.cause ?? ""}` }));
    }
    await client.start("any", settings);
    if (cell === "transcription") await speak(recording, (piece) => client.sendAudio(piece));
    await client.stopRecognition();
    return cell === "transcription" ? { text: words.join("").trim(), partials } : { clean: true };
}

async function elevenlabs() {
    const { ElevenLabsClient } = require("@elevenlabs/elevenlabs-js");
    const client = new ElevenLabsClient({ apiKey: "any", baseUrl });
    const connection = await client.speechToText.realtime.connect({
        modelId: "scribe_v2_realtime",
        audioFormat: cell === "error" ? "pcm_12000" : "pcm_16000",
        sampleRate: 16000,
        includeLanguageDetection: true,
    });
    const finals = [];
    let problem = null, isOpen = false, isClosed = false;
    connection.on("session_started", () => (isOpen = true));
    connection.on("committed_transcript_with_timestamps", (event) => finals.push(event.text));
    connection.on("error", (error) => (problem ??= error));
    connection.on("close", () => (isClosed = true));
    if (cell === "error") {
        await until(() => problem);
        return { error: problem.error ?? String(problem) };
    }
    await until(() => isOpen);
    if (cell === "transcription") {
        await speak(recording, (piece) => connection.send({ audioBase64: piece.toString("base64") }));
        connection.commit();
        await until(() => finals.length);
    }
    connection.close();
    await until(() => isClosed);
    return { text: finals.join(" "), clean: !problem };
}

async function cartesiaTurns() {
    const { Cartesia } = require("@cartesia/cartesia-js");
    const { AutoFinalizeWS } = require("@cartesia/cartesia-js/resources/stt/auto-finalize/ws");
    const client = new Cartesia({ apiKey: "any", baseURL: baseUrl });
    const settings = { model: "ink-2", encoding: "pcm_s16le", sample_rate: 16000 };
    if (cell === "error") settings.turn_eager_end_threshold = 0.9;
    const socket = new AutoFinalizeWS(client, settings);
    const events = [];
    let problem = null, isClosed = false;
    socket.on("error", (error) => (problem ??= error));
    socket.on("event", (event) => events.push(event));
    socket.on("close", () => (isClosed = true));
    if (cell === "error") {
        await until(() => problem);
        return { error: problem.message };
    }
    await until(() => events.length);
    if (cell === "transcription") await speak(recording, (piece) => socket.sendRaw(piece));
    socket.send({ type: "close" });
    await until(() => isClosed || problem);
    const ended = events.filter((event) => event.type === "turn.end").map((event) => event.transcript);
    return { text: ended.join(" "), clean: !problem };
}

async function cartesiaSpeak() {
    const { Cartesia } = require("@cartesia/cartesia-js");
    const client = new Cartesia({ apiKey: "any", baseURL: baseUrl });
    const socket = await client.tts.websocket();
    const context = socket.context({
        model_id: "sonic-3",
        voice: { mode: "id", id: "any" },
        output_format: { container: "raw", encoding: "pcm_s16le", sample_rate: RATE },
    });
    for (const word of text.split(" ")) await context.push({ transcript: `${word} ` });
    await context.no_more_inputs();
    const audio = [];
    for await (const event of context.receive()) {
        if (event.type === "chunk") audio.push(event.audio ?? Buffer.from(event.data, "base64"));
    }
    socket.close();
    const whole = Buffer.concat(audio);
    writeWav(heard, whole, RATE);
    return { audio_s: whole.length / 2 / RATE };
}

const VENDORS = { speechmatics, elevenlabs, cartesia_turns: cartesiaTurns, cartesia_speak: cartesiaSpeak };
run(VENDORS[vendor]);
