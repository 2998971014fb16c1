"""Pipecat's service for ElevenLabs' text to dialogue, unmodified:
pipecat_services.dialogue.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cell: speech.
"""

import asyncio
import json
import sys

import sound
from pipecat.services.elevenlabs.dialogue.tts import ElevenLabsDialogueTTSService
from pipecat_service import Running

RATE = 24000
cell, base_url, _recording, heard, text = sys.argv[1:6]
settings = ElevenLabsDialogueTTSService.Settings(voice="any-voice")


async def speech():
    url = base_url.replace("http", "ws", 1)
    service = ElevenLabsDialogueTTSService(api_key="any-key", url=url, settings=settings)
    async with Running(service, rate_out_hz=RATE) as running:
        audio = await running.say(text)
        second = await running.say("The second context. It has two sentences.")
    sound.write(heard, audio, RATE)
    return {"audio_s": sound.seconds(audio, RATE), "second_audio_s": sound.seconds(second, RATE)}


assert cell == "speech", f"no cell {cell}"
print(json.dumps(asyncio.run(speech())))
