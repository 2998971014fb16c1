// ElevenLabs' public JavaScript library, REST, unmodified: node rest_elevenlabs.cjs CELL BASE_URL RECORDING.wav HEARD TEXT
//
// Prints one JSON object. Cells: transcription, speech (the code of the vendor's first page), error.
const fs = require("node:fs");
const { ElevenLabsClient } = require("@elevenlabs/elevenlabs-js");
const { run } = require("./script.cjs");

const [cell, baseUrl, recording, heard, text] = process.argv.slice(2);

async function bytesOf(audio) {
    const pieces = [];
    for await (const piece of audio) pieces.push(piece);
    return Buffer.concat(pieces);
}

async function main() {
    const elevenlabs = new ElevenLabsClient({ baseUrl, apiKey: "any-key" });
    if (cell === "transcription") {
        const file = new Blob([fs.readFileSync(recording)], { type: "audio/wav" });
        const transcript = await elevenlabs.speechToText.convert({ file, modelId: "scribe_v2", languageCode: "eng" });
        return { text: transcript.text, words: transcript.words.length };
    }
    if (cell === "error") {
        try {
            await bytesOf(await elevenlabs.textToSpeech.convert("any", { text: "", modelId: "eleven_multilingual_v2" }));
        } catch (error) {
            return { error: `${error.statusCode}: ${JSON.stringify(error.body)}` };
        }
        return {};
    }
    const settings = { text, modelId: "eleven_multilingual_v2", outputFormat: "mp3_44100_128" };
    const audio = await bytesOf(await elevenlabs.textToSpeech.convert("JBFqnCBsd6RMkjVDRZzb", settings));
    const opus = await bytesOf(await elevenlabs.textToSpeech.stream("any", { text, outputFormat: "opus_48000_32" }));
    if (opus.toString("latin1", 0, 4) !== "OggS") throw new Error("not Ogg");
    fs.writeFileSync(heard, audio);
    return { bytes: audio.length, opus_bytes: opus.length };
}

run(main);
