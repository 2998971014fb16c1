// Gladia's public JavaScript library, unmodified: node gladia.cjs CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// Prints one JSON object. Cells: transcription, error, close.
const { GladiaClient } = require("@gladiaio/sdk");
const { run, speak } = require("./script.cjs");

const [cell, baseUrl, recording] = process.argv.slice(2);

async function main() {
    const client = new GladiaClient({ apiKey: "any-key", apiUrl: baseUrl, httpRetry: { maxAttempts: 1 } });
    const session = client.liveV2().startSession({
        encoding: cell === "error" ? "mp3" : "wav/pcm",
        sample_rate: 16000,
        bit_depth: 16,
        channels: 1,
        language_config: { languages: ["en"] },
        realtime_processing: { custom_vocabulary: true, custom_vocabulary_config: { vocabulary: ["Norland", { value: "Dashwood" }] } },
        messages_config: { receive_partial_transcripts: true },
    });
    const finals = [];
    let problem = null;
    session.on("message", (it) => {
        if (it.type === "transcript" && it.data.is_final) finals.push(it.data.utterance.text);
    });
    session.on("error", (error) => (problem = error));
    const ended = new Promise((resolve) => session.once("ended", resolve));
    if (cell === "error") {
        await ended;
        return { error: String(problem?.message ?? problem) };
    }
    await new Promise((resolve) => session.once("connected", resolve));
    if (cell === "transcription") {
        await speak(recording, (piece) => session.sendAudio(piece));
    }
    session.stopRecording();
    const { code } = await ended;
    if (problem) throw problem;
    return cell === "transcription" ? { text: finals.join(" ").trim() } : { code, clean: true };
}

run(main);
