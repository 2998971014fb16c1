// What the scripts for Node here share: a recording as fast as speech, and the result as the last line.
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

module.exports = { run, sleep, speak };
