// Soniox's public library for Node.js, unmodified: node soniox.cjs CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// Prints one JSON object. Cells: transcription, error, close.
const { SonioxNodeClient } = require("@soniox/node");
const { run, sleep, speak } = require("./script.cjs");

// Node.js has one of its own from version 22 on.
globalThis.WebSocket ??= require("ws");

const [cell, baseUrl, recording] = process.argv.slice(2);

async function main() {
    const url = baseUrl.replace(/^http/, "ws") + "/transcribe-websocket";
    const client = new SonioxNodeClient({ api_key: "any-key", realtime: { ws_base_url: url } });
    const session = client.realtime.stt({
        model: "stt-rt-v5",
        audio_format: cell === "error" ? "auto" : "pcm_s16le",
        sample_rate: 16000,
        num_channels: 1,
        language_hints: ["en"],
        enable_endpoint_detection: true,
        context: { terms: ["Dashwood"] },
    });
    const words = [];
    let problem = null;
    session.on("result", (result) => words.push(...result.tokens.filter((token) => token.is_final).map((token) => token.text)));
    session.on("error", (error) => (problem = problem ?? error));
    await session.connect();
    if (cell === "error") {
        for (let waited = 0; !problem && waited < 10000; waited += 100) await sleep(100);
        return { error: `${problem.code}: ${problem.message}` };
    }
    if (cell === "transcription") {
        await speak(recording, (piece) => session.sendAudio(piece));
    }
    await session.finish();
    if (problem) throw problem;
    const text = words.filter((word) => !word.startsWith("<")).join("").trim();
    return cell === "transcription" ? { text } : { code: null, clean: true };
}

run(main);
