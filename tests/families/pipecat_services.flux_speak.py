"""Pipecat's service for Deepgram's Flux text to speech, unmodified:
pipecat_services.flux_speak.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: speech, error.
"""

import asyncio
import json
import sys

import sound
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService
from pipecat_service import Running, error_of

RATE = 24000
cell, base_url, _recording, heard, text = sys.argv[1:6]
url = base_url.replace("http", "ws", 1) + "/v2/speak"


async def speech():
    async with Running(DeepgramFluxTTSService(api_key="any-key", url=url), rate_out_hz=RATE) as running:
        audio = await running.say(text)
        second = await running.say("The second turn. It has two sentences.")
    sound.write(heard, audio, RATE)
    return {"audio_s": sound.seconds(audio, RATE), "second_audio_s": sound.seconds(second, RATE)}


async def error():
    return {"error": await error_of(DeepgramFluxTTSService(api_key="any-key", url=url, sample_rate=7))}


print(json.dumps(asyncio.run({"speech": speech, "error": error}[cell]())))
