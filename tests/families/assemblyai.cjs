// AssemblyAI's public JavaScript library, unmodified: node assemblyai.cjs CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// Prints one JSON object. Cells: transcription, error, close. The library takes wss:// only, so BASE_URL is https://.
const { StreamingTranscriber } = require("assemblyai");
const { run, sleep, speak } = require("./script.cjs");

const [cell, baseUrl, recording] = process.argv.slice(2);
const url = baseUrl.replace(/^http/, "ws") + "/v3/ws";

async function main() {
    const options = { websocketBaseUrl: url, apiKey: "any-key", sampleRate: 16000, formatTurns: true, keytermsPrompt: ["Dashwood"] };
    const session = new StreamingTranscriber(cell === "error" ? { ...options, encoding: "aac" } : options);
    const turns = [];
    let closed = null;
    let problem = null;
    session.on("turn", (turn) => turns.push(turn));
    session.on("close", (code) => (closed = code));
    session.on("error", (error) => (problem = error));
    if (cell === "error") {
        await session.connect().catch((error) => (problem = problem ?? error));
        await sleep(500);
        return { error: String(problem) };
    }
    const begin = await session.connect();
    if (cell === "transcription") {
        await speak(recording, (piece) => session.sendAudio(piece));
        session.forceEndpoint();
    }
    await session.close();
    const finals = turns.filter((turn) => turn.end_of_turn && turn.turn_is_formatted);
    if (cell === "transcription") return { text: finals.map((turn) => turn.transcript).join(" ") };
    // The library waits for Termination, and then closes the socket itself.
    await sleep(300);
    return { code: closed, clean: problem === null && typeof begin.id === "string" };
}

run(main);
