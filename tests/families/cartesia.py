"""Cartesia's public Python library, unmodified: cartesia.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription (both kinds of speech to text), speech, interruption, error, close.
"""

import asyncio
import json
import sys
import wave

# This script has the library's name, and stands in front of it.
sys.path.pop(0)
from cartesia import AsyncCartesia, Cartesia

CHUNK_S = 0.05
RATE = 24000
PATIENCE_S = 25
cell, base_url, recording, heard, text = sys.argv[1:6]
urls = {"base_url": base_url, "websocket_base_url": base_url.replace("http", "ws", 1)}
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}
VOICE = {"mode": "id", "id": "any-voice"}


async def stream(connection, end):
    with wave.open(recording) as file:
        while chunk := file.readframes(int(file.getframerate() * CHUNK_S)):
            await connection.send_raw(chunk)
            await asyncio.sleep(CHUNK_S)
    for message in end:
        await connection.send(message)


async def listen(kind, end, **query):
    """All events of a session with one recording."""
    client = AsyncCartesia(api_key="any-key", **urls)
    events = []
    async with getattr(client.stt, kind).websocket(encoding="pcm_s16le", sample_rate=16000, **query) as connection:
        sending = asyncio.create_task(stream(connection, end))
        async for event in connection:
            assert event.type != "error", event
            events.append(event)
        await sending
    return events


async def transcription():
    turns = await listen("auto_finalize", [{"type": "close"}], model="ink-2", keyterm=["Dashwood", "Norland"])
    ends = [event.transcript for event in turns if event.type == "turn.end"]
    chunks = await listen("manual_finalize", ["finalize", "close"], model="ink-whisper")
    finals = [event.text for event in chunks if event.type == "transcript" and event.is_final]
    kinds = sorted({event.type for event in turns} | {event.type for event in chunks})
    return {"text": " ".join(ends).strip(), "manual_text": "".join(finals).strip(), "kinds": kinds}


def speak(client):
    """The audio of two contexts of one connection: one text in pieces, and the same at once."""
    audio = {}
    with client.tts.websocket_connect() as connection:
        first = connection.context("first", model_id="sonic-3", voice=VOICE, output_format=FORMAT)
        second = connection.context("second", model_id="sonic-3", voice=VOICE, output_format=FORMAT)
        for word in text.split():
            first.push(word + " ")
        first.no_more_inputs()
        second.send(model_id="sonic-3", voice=VOICE, output_format=FORMAT, transcript=text, continue_=False)
        for context in (first, second):
            events = list(context.receive())
            assert events[-1].type == "done", events[-1]
            audio[context._context_id] = b"".join(event.audio for event in events if event.type == "chunk")
    return audio


def speech():
    audio = speak(Cartesia(api_key="any-key", **urls))
    with wave.open(heard, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(audio["first"])
    return {"audio_s": len(audio["first"]) / 2 / RATE, "second_audio_s": len(audio["second"]) / 2 / RATE}


async def error():
    client = AsyncCartesia(api_key="any-key", **urls)
    async with client.stt.auto_finalize.websocket(encoding="pcm_s32le", sample_rate=16000, model="ink-2") as connection:
        listened = await connection.recv()
    with Cartesia(api_key="any-key", **urls).tts.websocket_connect() as connection:
        connection.send({"transcript": "Hello", "context_id": "a", "output_format": {**FORMAT, "container": "mp3"}})
        spoken = connection.recv()
    return {"error": f"{listened.status_code}: {listened.message}", "speak_error": f"{spoken.status_code}: {spoken.message}"}


async def close():
    client = AsyncCartesia(api_key="any-key", **urls)
    async with client.stt.auto_finalize.websocket(encoding="pcm_s16le", sample_rate=16000, model="ink-2") as connection:
        await connection.send({"type": "close"})
        events = [event.type async for event in connection]
        code = connection._connection.close_code
    return {"code": code, "clean": events == ["connected"]}


if cell == "speech":
    print(json.dumps(speech()))
else:
    cells = {"transcription": transcription, "error": error, "close": close}
    print(json.dumps(asyncio.run(asyncio.wait_for(cells[cell](), 2 * PATIENCE_S))))
