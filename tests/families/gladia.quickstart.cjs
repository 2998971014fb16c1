// The code of Gladia's first page with its public JavaScript library, unmodified: node gladia.quickstart.cjs CELL BASE_URL RECORDING.wav
//
// Prints one JSON object. Cells: transcription, error.
const { GladiaClient } = require("@gladiaio/sdk");
const { run } = require("./script.cjs");

const [cell, apiUrl, recording] = process.argv.slice(2);

async function main() {
    const client = new GladiaClient({ apiKey: "any-key", apiUrl, httpRetry: { maxAttempts: 1 } }).preRecordedV2();
    const audio = cell === "error" ? "https://example.com/recording.mp3" : recording;
    const asked = client.transcribe(audio, { language_config: { languages: ["en"] } }, { interval: 100 });
    if (cell === "error") {
        return asked.then(() => ({}), (error) => ({ error: error.message }));
    }
    const job = await asked;
    return { text: job.result.transcription.full_transcript };
}

run(main);
