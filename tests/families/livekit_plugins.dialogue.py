"""LiveKit's public plugin for ElevenLabs with a dialogue model, unmodified:
livekit_plugins.dialogue.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

It speaks in contexts of text to dialogue (multi-stream-input). Prints one JSON object. Cell: speech.
"""

import asyncio
import json
import sys

import aiohttp
import sound
from livekit.agents import APIConnectOptions
from livekit.plugins import elevenlabs

RATE = 24000
cell, base_url, recording, heard, text = sys.argv[1:6]


async def say(tts, pieces):
    """The audio of one context, whose text comes in pieces."""
    audio = bytearray()
    async with tts.stream(conn_options=APIConnectOptions(max_retry=0)) as stream:
        for piece in pieces:
            stream.push_text(piece)
        stream.end_input()
        async for event in stream:
            audio += bytes(event.frame.data)
    return bytes(audio)


async def speech(session):
    tts = elevenlabs.TTS(
        voice_id="any-voice",
        model="eleven_v3",
        encoding="pcm_24000",
        api_key="any-key",
        base_url=f"{base_url}/v1",
        http_session=session,
    )
    words = [word + " " for word in text.split()]
    first, second = await asyncio.gather(say(tts, words), say(tts, ["The second context."]))
    await tts.aclose()
    sound.write(heard, first, RATE)
    return {"audio_s": sound.seconds(first, RATE), "second_audio_s": sound.seconds(second, RATE)}


async def main():
    async with aiohttp.ClientSession() as session:
        return await asyncio.wait_for(speech(session), 40)


assert cell == "speech", f"no cell {cell}"
print(json.dumps(asyncio.run(main())))
