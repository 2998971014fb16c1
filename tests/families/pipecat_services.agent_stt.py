"""Pipecat's service for Speechmatics' Agent STT, unmodified:
pipecat_services.agent_stt.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription, error.
"""

import asyncio
import json
import sys

import sound

# The script of another family has the library's name, and stands in front of it.
families = sys.path.pop(0)
from pipecat.frames.frames import (
    InputAudioRawFrame,
    ProposedUserStoppedSpeakingFrame,
    TranscriptionFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.services.speechmatics.stt import SpeechmaticsSTTService, TurnDetectionMode
import speechmatics.agent_stt

sys.path.insert(0, families)
from pipecat_service import Running

RATE = 16000
CHUNK_S = 0.02
cell, base_url, recording = sys.argv[1:4]
url = base_url.replace("http", "ws", 1) + "/v2/agent"


async def say(running):
    """Sends the recording as it would be spoken, and silence behind it."""
    pcm, step = sound.read(recording, RATE) + bytes(2 * RATE * 2), int(CHUNK_S * RATE) * 2
    for at in range(0, len(pcm), step):
        audio = pcm[at : at + step].ljust(step, b"\0")
        await running.worker.queue_frame(InputAudioRawFrame(audio=audio, sample_rate=RATE, num_channels=1))
        await asyncio.sleep(CHUNK_S)


async def words(mode):
    settings = SpeechmaticsSTTService.Settings(turn_detection_mode=mode)
    async with Running(SpeechmaticsSTTService(api_key="any-key", base_url=url, settings=settings)) as running:
        await say(running)
        if mode == TurnDetectionMode.EXTERNAL:
            assert not running.of(TranscriptionFrame), "the turn ended before Pipecat said so"
            await running.worker.queue_frame(VADUserStoppedSpeakingFrame())
        else:
            await running.wait_for(ProposedUserStoppedSpeakingFrame)
        await running.wait_for(TranscriptionFrame)
    return " ".join(frame.text for frame in running.of(TranscriptionFrame)[:1])


async def transcription():
    return {"text": await words(TurnDetectionMode.VAD), "external": await words(TurnDetectionMode.EXTERNAL)}


async def error():
    settings = SpeechmaticsSTTService.Settings(additional_vocab=[{"word": "x"}])
    async with Running(SpeechmaticsSTTService(api_key="any-key", base_url=url, settings=settings)) as running:
        for _ in range(200):
            if running.errors():
                break
            await asyncio.sleep(0.05)
    return {"error": " ".join(running.errors())}


print(json.dumps(asyncio.run({"transcription": transcription, "error": error}[cell]())))
