"""LiveKit's public plugin for ElevenLabs, unmodified: elevenlabs_livekit.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

It speaks in contexts (multi-stream-input) and by REST, in mp3, which is its default. Prints one JSON object. Cell: speech.
"""

import asyncio
import json
import sys
import wave

import aiohttp
from livekit.plugins import elevenlabs

RATE = 22050
cell, base_url, recording, heard, text = sys.argv[1:6]


async def say(tts, pieces):
    """The audio of one context, whose text comes in pieces."""
    audio = bytearray()
    async with tts.stream() as stream:
        for piece in pieces:
            stream.push_text(piece)
        stream.end_input()
        async for event in stream:
            audio += bytes(event.frame.data)
    return bytes(audio)


async def say_at_once(tts):
    """The audio of a request of REST."""
    async with tts.synthesize(text) as stream:
        return b"".join([bytes(event.frame.data) async for event in stream])


async def speech():
    async with aiohttp.ClientSession() as session:
        tts = elevenlabs.TTS(api_key="any-key", base_url=f"{base_url}/v1", http_session=session)
        assert tts.sample_rate == RATE
        words = [word + " " for word in text.split()]
        first, second = await asyncio.gather(say(tts, words), say(tts, ["The second context."]))
        whole = await say_at_once(tts)
        await tts.aclose()
    with wave.open(heard, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(first)
    assert abs(len(whole) - len(first)) < RATE, (len(whole), len(first))
    return {"audio_s": len(first) / 2 / RATE, "second_audio_s": len(second) / 2 / RATE}


assert cell == "speech", f"no cell {cell}"
print(json.dumps(asyncio.run(asyncio.wait_for(speech(), 40))))
