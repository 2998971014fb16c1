// The code of Soniox' first page with its public library for Node.js, unmodified: node soniox.quickstart.cjs CELL BASE_URL RECORDING.wav
//
// Prints one JSON object. Cells: transcription, error, close (the transcription and its file are deleted).
const fs = require("node:fs");
const { SonioxNodeClient } = require("@soniox/node");
const { run } = require("./script.cjs");

const [cell, base_url, recording] = process.argv.slice(2);

async function main() {
    const client = new SonioxNodeClient({ api_key: "any-key", base_url });
    const options = { model: "stt-async-v5", wait: true, wait_options: { interval_ms: 1000 } };
    if (cell === "error") {
        const asked = client.stt.transcribe({ ...options, audio_url: "https://example.com/recording.mp3" });
        return asked.then(() => ({}), (error) => ({ error: error.message }));
    }
    const transcription = await client.stt.transcribe({ ...options, file: fs.readFileSync(recording), filename: "recording.wav" });
    if (cell === "close") {
        await transcription.destroy();
        return { clean: (await client.stt.get(transcription.id)) === null };
    }
    return { text: (await transcription.getTranscript()).text };
}

run(main);
