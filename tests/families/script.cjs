// What the scripts for Node here share: a recording as fast as speech, audio in a file, and the result as the last line.
const fs = require("node:fs");

const CHUNK_BYTES = 1600;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Sends a recording of 16 kHz in pieces of 50 ms.
async function speak(recording, send) {
    const audio = fs.readFileSync(recording).subarray(44);
    for (let at = 0; at < audio.length; at += CHUNK_BYTES) {
        send(audio.subarray(at, at + CHUNK_BYTES));
        await sleep(50);
    }
}

// Waits until this holds. Fails after this time.
async function until(holds, patienceS = 15) {
    for (const end = Date.now() + patienceS * 1000; !holds() && Date.now() < end;) await sleep(50);
    if (!holds()) throw new Error(`nothing came until ${holds}`);
}

// Writes int16 samples of one channel to a WAV file.
function writeWav(path, samples, rateHz) {
    const head = Buffer.alloc(44);
    head.write("RIFF", 0);
    head.writeUInt32LE(36 + samples.length, 4);
    head.write("WAVEfmt ", 8);
    head.writeUInt32LE(16, 16);
    head.writeUInt16LE(1, 20);
    head.writeUInt16LE(1, 22);
    head.writeUInt32LE(rateHz, 24);
    head.writeUInt32LE(2 * rateHz, 28);
    head.writeUInt16LE(2, 32);
    head.writeUInt16LE(16, 34);
    head.write("data", 36);
    head.writeUInt32LE(samples.length, 40);
    fs.writeFileSync(path, Buffer.concat([head, samples]));
}

// Prints the result of the script's main function as JSON and ends the process.
function run(main) {
    main().then((result) => {
        console.log(JSON.stringify(result));
        process.exit(0);
    }, (error) => {
        console.error(error);
        process.exit(1);
    });
}

module.exports = { run, sleep, speak, until, writeWav };
