"""ElevenLabs' public Python library, unmodified: elevenlabs.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription, error and close of the real-time speech to text; speech, which needs TLS.
"""

import asyncio
import base64
import json
import sys
import time
import wave

# This script has the library's name, and stands in front of it.
sys.path.pop(0)
from elevenlabs import AudioFormat, CommitStrategy, RealtimeEvents
from elevenlabs.client import ElevenLabs

CHUNK_S = 0.05
cell, base_url, recording, heard, text = sys.argv[1:6]
client = ElevenLabs(base_url=base_url, api_key="any-key")


async def connect(events, **changes):
    fields = {
        "model_id": "scribe_v2_realtime",
        "audio_format": AudioFormat.PCM_16000,
        "sample_rate": 16000,
        "commit_strategy": CommitStrategy.MANUAL,
        "language_code": "en",
        "keyterms": ["Dashwood"],
        "include_timestamps": True,
    }
    connection = await client.speech_to_text.realtime.connect({**fields, **changes})
    for event in RealtimeEvents:
        connection.on(event, lambda *data, event=event: events.put_nowait((event.value, data[0] if data else None)))
    return connection


async def wait_for(events, name, within=25):
    seen = {}
    while name not in seen:
        event, data = await asyncio.wait_for(events.get(), within)
        seen[event] = data
    return seen


async def transcription():
    events = asyncio.Queue()
    connection = await connect(events)
    with wave.open(recording) as file:
        while chunk := file.readframes(int(file.getframerate() * CHUNK_S)):
            await connection.send({"audio_base_64": base64.b64encode(chunk).decode()})
            await asyncio.sleep(CHUNK_S)
    await connection.commit()
    seen = await wait_for(events, "committed_transcript_with_timestamps")
    await connection.close()
    return {"text": seen["committed_transcript"]["text"], "events": sorted(seen)}


async def error():
    events = asyncio.Queue()
    await connect(events, vad_silence_threshold_secs=9)
    seen = await wait_for(events, "error", 10)
    return {"error": f"{seen['error']['message_type']}: {seen['error']['error']}"}


async def close():
    events = asyncio.Queue()
    connection = await connect(events)
    await wait_for(events, "session_started", 10)
    websocket = connection.websocket
    await connection.close()
    return {"code": websocket.close_code, "clean": True}


def speech():
    began = time.monotonic()
    # A model that writes: the text comes in pieces.
    pieces = (word + " " for word in text.split())
    chunks = list(
        client.text_to_speech.convert_realtime("any-voice", text=pieces, model_id="eleven_flash_v2_5")
    )
    audio = b"".join(chunks)
    # The default is mp3_44100_128.
    with open(heard, "wb") as file:
        file.write(audio)
    return {"audio_s": len(audio) / 16000, "took_s": round(time.monotonic() - began, 2)}


if cell == "speech":
    print(json.dumps(speech()))
else:
    print(json.dumps(asyncio.run({"transcription": transcription, "error": error, "close": close}[cell]())))
