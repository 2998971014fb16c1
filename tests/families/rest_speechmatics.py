"""Speechmatics' public Python library for text to speech, unmodified: rest_speechmatics.py CELL BASE_URL RECORDING.wav HEARD TEXT

Prints one JSON object. Cells: speech (the code of the vendor's first page, and raw samples), error.
"""

import asyncio
import json
import sys

# A script here has the library's name.
sys.path.pop(0)
from speechmatics.tts import AsyncClient, OutputFormat, Voice

cell, base_url, recording, heard, text = sys.argv[1:6]


async def generate(words, output_format):
    async with AsyncClient(api_key="any-key", url=base_url) as client:
        async with await client.generate(text=words, voice=Voice.SARAH, output_format=output_format) as response:
            return await response.read()


async def speech():
    wav = await generate(text, OutputFormat.WAV_16000)
    raw = await generate(text, OutputFormat.RAW_PCM_16000)
    assert abs(len(wav) - 44 - len(raw)) < 9600, (len(wav), len(raw))
    with open(heard, "wb") as file:
        file.write(wav)
    return {"audio_s": len(raw) / 32000}


async def error():
    try:
        await generate("", OutputFormat.WAV_16000)
    except Exception as refused:
        return {"error": f"{type(refused).__name__}: {refused}"}
    return {}


print(json.dumps(asyncio.run({"speech": speech, "error": error}[cell]())))
