"""LiveKit's public plugin for Speechmatics' Agent STT, unmodified:
livekit_plugins.agent_stt.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription, error.
"""

import asyncio
import json
import sys

import sound

# The script of another family has the library's name, and stands in front of it.
sys.path.pop(0)
from livekit import rtc
from livekit.agents import APIConnectOptions, APIError
from livekit.agents.stt import SpeechEventType
from livekit.plugins import speechmatics
from livekit.plugins.speechmatics import TurnDetectionMode

RATE = 16000
CHUNK_S = 0.02
cell, base_url, recording = sys.argv[1:4]
url = base_url.replace("http", "ws", 1) + "/v2/agent"


async def say(stream):
    """Sends the recording as it would be spoken, and silence behind it."""
    pcm, step = sound.read(recording, RATE) + bytes(2 * RATE * 2), int(CHUNK_S * RATE) * 2
    for at in range(0, len(pcm), step):
        audio = pcm[at : at + step].ljust(step, b"\0")
        stream.push_frame(rtc.AudioFrame(audio, RATE, 1, len(audio) // 2))
        await asyncio.sleep(CHUNK_S)


def start(mode, **options):
    stt = speechmatics.STT(api_key="any-key", base_url=url, turn_detection_mode=mode, vad=None, **options)
    return stt, stt.stream(conn_options=APIConnectOptions(max_retry=0))


async def words(mode):
    stt, stream = start(mode)
    events = []

    async def receive():
        async for event in stream:
            events.append(event)
            if event.type == SpeechEventType.END_OF_SPEECH:
                return

    receiving = asyncio.create_task(receive())
    await say(stream)
    if mode == TurnDetectionMode.EXTERNAL:
        assert not events, "the turn ended before the application said so"
        stt.finalize()
    await asyncio.wait_for(receiving, 20)
    await stream.aclose()
    events = [event for event in events if event.type != SpeechEventType.INTERIM_TRANSCRIPT]
    kinds = [event.type.value for event in events]
    assert kinds == ["start_of_speech", "final_transcript", "end_of_speech"], kinds
    (words,) = events[1].alternatives
    assert 0 <= words.start_time < words.end_time <= 10, words
    return words.text


async def transcription():
    return {"text": await words(TurnDetectionMode.VAD), "external": await words(TurnDetectionMode.EXTERNAL)}


async def error():
    _, stream = start(TurnDetectionMode.VAD, additional_vocab=[{"word": "x"}])
    try:
        async for _ in stream:
            pass
    except APIError as problem:
        return {"error": str(problem)}
    return {}


print(json.dumps(asyncio.run(asyncio.wait_for({"transcription": transcription, "error": error}[cell](), 45))))
