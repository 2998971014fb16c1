// Cartesia's public JavaScript library, REST, unmodified: node rest_cartesia.cjs CELL BASE_URL RECORDING.wav HEARD TEXT
//
// Prints one JSON object. Cells: speech (the code of the vendor's first page), error.
const fs = require("node:fs");
const Cartesia = require("@cartesia/cartesia-js").default;
const { run } = require("./script.cjs");

const [cell, baseURL, , heard, text] = process.argv.slice(2);

async function main() {
    const client = new Cartesia({ baseURL, apiKey: "any-key", maxRetries: 0 });
    const generate = (container) =>
        client.tts.generate({
            model_id: "sonic-latest",
            output_format: { container, encoding: "pcm_f32le", sample_rate: 44100 },
            transcript: text,
            voice: "e07c00bc-4134-4eae-9ea4-1a55fb45746b",
        });
    if (cell === "error") {
        return generate("flac").then(
            () => ({}),
            (error) => ({ error: `${error.status}: ${error.message}` }),
        );
    }
    const content = await (await generate("wav")).blob();
    fs.writeFileSync(heard, Buffer.from(await content.arrayBuffer()));
    return { bytes: content.size };
}

run(main);
