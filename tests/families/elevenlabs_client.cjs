// ElevenLabs' public library for Agents in browsers, unmodified, in headless Chromium:
// node elevenlabs_client.cjs CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//
// A page loads the library and talks by a microphone that plays the recording. Prints one JSON object. Cells: conversation,
// interruption, speech, error, close.
const fs = require("node:fs");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");
const { startBrowser, writeMicrophone } = require("../clients/browser.cjs");
const { run, writeWav } = require("./script.cjs");

const [cell, baseUrl, recording, heard, text] = process.argv.slice(2);
const LIBRARY = path.join(process.env.NODE_PATH, "@elevenlabs/client/dist/lib.iife.js");
// Silence before the question, between its end and the second one, and after that, s. The microphone plays from before the
// connection is there, which takes seconds on a busy machine, and again from its start. What interrupts is said again, as the answer may
// begin late.
const PAUSES_S = { conversation: [6, 40, 0], interruption: [6, 5, 0] }[cell] ?? [60, 0, 0];
const RATE = 16000;

// In the page: a conversation with all its callbacks.
async function talk(cell, origin, text) {
    const came = { user: [], answers: [], audio: [], interrupted: [], problems: [], ends: [] };
    const start = performance.now();
    const until = async (isMet) => {
        for (const end = performance.now() + 25000; !isMet() && !came.ends.length && performance.now() < end;) {
            await new Promise((resolve) => setTimeout(resolve, 20));
        }
    };
    // Until no audio has come for a second.
    const untilQuiet = () => until(() => came.audio.length && performance.now() - start - came.audio.at(-1).at > 1000);
    const conversation = await ElevenLabsClient.Conversation.startSession({
        agentId: "any",
        connectionType: "websocket",
        origin,
        overrides: {
            agent: { prompt: { prompt: cell === "error" ? 7 : "Answer in one sentence." }, ...(cell === "speech" && { firstMessage: text }) },
        },
        onMessage: ({ source, message }) => came[source === "user" ? "user" : "answers"].push(message),
        onAudio: (base64) => came.audio.push({ at: performance.now() - start, base64 }),
        onInterruption: () => came.interrupted.push(performance.now() - start),
        onError: (message) => came.problems.push(message),
        onDisconnect: (details) => came.ends.push(details),
    }).catch((error) => came.problems.push(error.message));
    if (cell === "error") {
        await until(() => false);
        return came;
    }
    if (cell === "conversation") {
        await until(() => came.answers.length && came.user.length);
        await untilQuiet();
    } else if (cell === "speech") {
        await untilQuiet();
    } else if (cell === "interruption") {
        // An answer lasts some seconds, and the microphone's question comes when it comes: it meets one of several.
        let askedAt = -Infinity;
        await until(() => {
            const [now, heardAt] = [performance.now() - start, came.audio.at(-1)?.at ?? 0];
            if (!came.interrupted.length && now - askedAt > 3000 && now - heardAt > 500) {
                conversation.sendUserMessage(text);
                askedAt = now;
            }
            return came.interrupted.length;
        });
        await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    came.id = conversation.getId();
    await conversation.endSession();
    return came;
}

const page = '<!doctype html><script src="/library.js"></script>';
const server = http.createServer((request, response) => {
    const [type, body] = request.url === "/library.js" ? ["text/javascript", fs.readFileSync(LIBRARY)] : ["text/html", page];
    response.setHeader("content-type", type).end(body);
});

run(async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "elevenlabs-"));
    const microphone = path.join(folder, "microphone.wav");
    writeMicrophone(recording, microphone, PAUSES_S);
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const browser = await startBrowser(microphone, folder);
    await browser.goTo(`http://localhost:${server.address().port}/`);
    await browser.until("typeof ElevenLabsClient !== 'undefined'");
    const call = [cell, baseUrl.replace(/^http/, "ws"), text].map((argument) => JSON.stringify(argument)).join();
    const came = await browser.run(`(${talk})(${call})`);
    await browser.stop();
    fs.rmSync(folder, { recursive: true });
    const samples = (pieces) => Buffer.concat(pieces.map(({ base64 }) => Buffer.from(base64, "base64")));
    const seconds = (pieces) => samples(pieces).length / 2 / RATE;
    const ended = came.ends.map(({ reason, message }) => ({ reason, message }));
    if (cell === "error") return { error: [...came.problems, ...ended.map(({ message }) => message)].join("; ") };
    if (cell === "close") return { clean: ended.length === 1 && ended[0].reason === "user" && !came.problems.length, id: came.id };
    if (ended[0]?.reason !== "user" || came.problems.length) throw new Error(JSON.stringify([ended, came.problems]));
    if (cell === "interruption") {
        const [at] = came.interrupted;
        const [before, late] = [(piece) => piece.at <= at, (piece) => piece.at > at].map((is) => seconds(came.audio.filter(is)));
        return { audio_s: before, stopped: at !== undefined, late_audio_s: late };
    }
    writeWav(heard, samples(came.audio), RATE);
    return { text: came.answers[0], user: came.user[0] ?? "", audio_s: seconds(came.audio) };
});
