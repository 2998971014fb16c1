"""LiveKit's public plugin for Deepgram's Flux text to speech, unmodified:
livekit_plugins.flux_speak.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: speech, error.
"""

import asyncio
import json
import sys

import aiohttp
import sound
from livekit.agents import APIConnectOptions, APIError
from livekit.plugins import deepgram

RATE = 24000
cell, base_url, _recording, heard, text = sys.argv[1:6]


async def say(tts, pieces):
    """The audio of one stream, whose text comes in pieces."""
    audio = bytearray()
    async with tts.stream(conn_options=APIConnectOptions(max_retry=0)) as stream:
        for piece in pieces:
            stream.push_text(piece)
        stream.end_input()
        async for event in stream:
            audio += bytes(event.frame.data)
    return bytes(audio)


def speaker(session, **changes):
    url = f"{base_url}/v2/speak"
    return deepgram.TTSv2(**{"api_key": "any-key", "base_url": url, "http_session": session, **changes})


async def speech(session):
    tts = speaker(session)
    words = [word + " " for word in text.split()]
    # The second turn has the connection of the first.
    first = await say(tts, words)
    second = await say(tts, ["The second turn. It has two sentences."])
    await tts.aclose()
    sound.write(heard, first, RATE)
    return {"audio_s": sound.seconds(first, RATE), "second_audio_s": sound.seconds(second, RATE)}


async def error(session):
    tts = speaker(session, sample_rate=7)
    try:
        await say(tts, ["Hello."])
    except APIError as problem:
        return {"error": f"{problem}: {problem.body}"}
    finally:
        await tts.aclose()
    return {}


async def main():
    async with aiohttp.ClientSession() as session:
        return await asyncio.wait_for({"speech": speech, "error": error}[cell](session), 40)


print(json.dumps(asyncio.run(main())))
