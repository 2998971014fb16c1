// The code of AssemblyAI's first page with its public JavaScript library, unmodified: node assemblyai.quickstart.cjs CELL BASE_URL RECORDING.wav
//
// Prints one JSON object. Cells: transcription, error.
const { AssemblyAI } = require("assemblyai");
const { run } = require("./script.cjs");

const [cell, baseUrl, recording] = process.argv.slice(2);

async function main() {
    const client = new AssemblyAI({ apiKey: "any-key", baseUrl });
    const audio = cell === "error" ? "https://example.com/recording.mp3" : recording;
    const asked = client.transcripts.transcribe({ audio, speech_models: ["universal"] }, { pollingInterval: 100 });
    if (cell === "error") {
        return asked.then((transcript) => ({ error: transcript.error }), (error) => ({ error: error.message }));
    }
    const transcript = await asked;
    if (transcript.status !== "completed") throw new Error(transcript.error);
    const cues = await client.transcripts.subtitles(transcript.id, "vtt");
    if (!cues.startsWith("WEBVTT")) throw new Error(cues);
    return { text: transcript.text };
}

run(main);
