// Vercel's AI SDK, its functions for recordings and speech, with the vendors' providers, unmodified:
// node ai_sdk.audio.cjs PROVIDER CELL BASE_URL RECORDING.wav HEARD TEXT
//
// Prints one JSON object. Providers and cells: openai, deepgram and elevenlabs: transcription, speech and error; assemblyai and
// openai_stream: transcription and error; elevenlabs_stream: transcription.
const fs = require("node:fs");
const ai = require("ai");
const WebSocket = require("ws");
const { run, speak } = require("./script.cjs");

const [name, cell, baseUrl, recording, heard, text] = process.argv.slice(2);
const RATE = 16000;

// Providers without a `baseURL` take functions that dial.
const dial = (vendor) => ({
    apiKey: "any",
    fetch: (url, init) => fetch(String(url).replace(`https://${vendor}`, baseUrl), init),
    webSocket: class extends WebSocket {
        constructor(url, ...rest) {
            super(String(url).replace(`wss://${vendor}`, baseUrl.replace(/^http/, "ws")), ...rest);
        }
    },
});
const openai = () => require("@ai-sdk/openai").createOpenAI({ apiKey: "any", baseURL: `${baseUrl}/v1` });
const deepgram = () => require("@ai-sdk/deepgram").createDeepgram(dial("api.deepgram.com"));
const elevenlabs = () => require("@ai-sdk/elevenlabs").createElevenLabs(dial("api.elevenlabs.io"));
const assemblyai = () => require("@ai-sdk/assemblyai").createAssemblyAI(dial("api.assemblyai.com"));

// Models, and options that the vendor does not have.
const PROVIDERS = {
    openai: () => ({ hears: openai().transcription("gpt-4o-mini-transcribe"), speaks: openai().speech("gpt-4o-mini-tts"), mistake: { text: "" } }),
    deepgram: () => ({ hears: deepgram().transcription("nova-3"), speaks: deepgram().speech("aura-2-thalia-en"), mistake: { text: "" } }),
    elevenlabs: () => ({ hears: elevenlabs().transcription("scribe_v2"), speaks: elevenlabs().speech("eleven_v3"), mistake: { outputFormat: "mp3_1_2" } }),
    assemblyai: () => ({ hears: assemblyai().transcription("best"), mistake: { providerOptions: { assemblyai: { webhookUrl: "https://any" } } } }),
    openai_stream: () => ({ hears: openai().transcription("gpt-realtime-whisper"), mistake: { inputAudioFormat: { type: "audio/opus", rate: 48000 } } }),
    elevenlabs_stream: () => ({ hears: elevenlabs().transcription("scribe_v2_realtime") }),
};
const { hears, speaks, mistake } = PROVIDERS[name]();

const transcribe = (more) => ai.transcribe({ model: hears, audio: fs.readFileSync(recording), maxRetries: 0, ...more });
const generateSpeech = (more) => ai.generateSpeech({ model: speaks, text, voice: "alloy", maxRetries: 0, ...more });

// The recording as it is spoken, and silence behind it.
async function streamed(more) {
    const audio = new ReadableStream({
        async start(controller) {
            await speak(recording, (piece) => controller.enqueue(new Uint8Array(piece)));
            controller.enqueue(new Uint8Array(RATE));
            controller.close();
        },
    });
    const inputAudioFormat = { type: "audio/pcm", rate: RATE };
    const result = ai.experimental_streamTranscribe({ model: hears, audio, inputAudioFormat, ...more });
    let partials = 0;
    for await (const part of result.fullStream) {
        if (part.type === "error") throw part.error;
        if (part.type.startsWith("transcript")) partials += 1;
    }
    return { text: await result.text, partials };
}

async function attempt(call) {
    try {
        await call;
        return {};
    } catch (error) {
        return { error: [error.message, error.responseBody, error.cause?.message].filter(Boolean).join(" ") };
    }
}

run(async () => {
    const isStream = name.endsWith("_stream");
    if (cell === "error") return attempt(isStream ? streamed(mistake) : speaks ? generateSpeech(mistake) : transcribe(mistake));
    if (cell === "transcription") return isStream ? streamed() : { text: (await transcribe()).text };
    const { audio } = await generateSpeech();
    fs.writeFileSync(heard, audio.uint8Array);
    return { bytes: audio.uint8Array.length, format: audio.format };
});
