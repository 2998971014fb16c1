"""Speaks Wyoming with the package's own client, in the order of Home Assistant's integration.

    wyoming.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

BASE_URL is that of the [[tcp]] listener, such as tcp://127.0.0.1:10300. Each request has a connection of its own.
"""

import asyncio
import json
import sys
import time
import urllib.parse
import wave

# This file would hide the package of the same name.
sys.path = [place for place in sys.path if not place.endswith("/families")]

from wyoming.asr import Transcribe, Transcript, TranscriptChunk  # noqa: E402
from wyoming.audio import AudioChunk, AudioStart, AudioStop  # noqa: E402
from wyoming.client import AsyncTcpClient  # noqa: E402
from wyoming.error import Error  # noqa: E402
from wyoming.event import Event  # noqa: E402
from wyoming.handle import Handled, HandledChunk, NotHandled  # noqa: E402
from wyoming.info import Describe, Info  # noqa: E402
from wyoming.ping import Ping, Pong  # noqa: E402
from wyoming.tts import (  # noqa: E402
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
)

CHUNK_S = 0.064
PATIENCE_S = 35


async def describe(connect):
    async with connect() as client:
        await client.write_event(Describe().event())
        event = await client.read_event()
        info = Info.from_event(event)
    assert info.asr[0].models[0].languages and info.tts[0].supports_synthesize_streaming, info
    return info


async def transcription(connect, recording):
    await describe(connect)
    with wave.open(recording) as file:
        format = {"rate": file.getframerate(), "width": file.getsampwidth(), "channels": file.getnchannels()}
        audio = file.readframes(file.getnframes())
    chunk = int(format["rate"] * CHUNK_S) * format["width"] * format["channels"]
    chunks = ""
    async with connect() as client:
        await client.write_event(Transcribe(language="en").event())
        await client.write_event(AudioStart(**format).event())
        began = time.monotonic()
        for number, at in enumerate(range(0, len(audio), chunk)):
            await asyncio.sleep(max(0.0, began + number * CHUNK_S - time.monotonic()))
            await client.write_event(AudioChunk(**format, audio=audio[at : at + chunk]).event())
        await client.write_event(AudioStop().event())
        while True:
            event = await client.read_event()
            assert event is not None, "the connection was closed"
            if TranscriptChunk.is_type(event.type):
                chunks += TranscriptChunk.from_event(event).text
            if Transcript.is_type(event.type):
                text = Transcript.from_event(event).text
                break
    assert chunks == text, (chunks, text)
    return {"text": text}


async def read_speech(client, ends):
    """The audio until an event of type `ends`, with its rate."""
    audio, rate, is_open = b"", 0, False
    while True:
        event = await client.read_event()
        assert event is not None, "the connection was closed"
        if AudioStart.is_type(event.type):
            rate, is_open = AudioStart.from_event(event).rate, True
        elif AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            assert is_open and (chunk.rate, chunk.width, chunk.channels) == (rate, 2, 1), event
            audio += chunk.audio
        elif AudioStop.is_type(event.type):
            is_open = False
        if ends.is_type(event.type):
            assert not is_open, "no end of the audio"
            return audio, rate


def save(heard, audio, rate):
    with wave.open(heard, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(audio)
    return len(audio) / 2 / rate


async def speech(connect, heard, text):
    async with connect() as client:
        await client.write_event(Synthesize(text=text).event())
        whole, rate = await read_speech(client, AudioStop)
    # The same again as a stream, whose pieces cut words anywhere.
    async with connect() as client:
        await client.write_event(SynthesizeStart().event())
        for at in range(0, len(text), 7):
            await client.write_event(SynthesizeChunk(text=text[at : at + 7]).event())
        await client.write_event(Synthesize(text=text).event())
        await client.write_event(SynthesizeStop().event())
        streamed, _ = await read_speech(client, SynthesizeStopped)
    assert len(whole) / 2 < len(streamed) < len(whole) * 2, (len(whole), len(streamed))
    return {"audio_s": save(heard, whole, rate)}


async def conversation(connect, heard, text):
    chunks = ""
    async with connect() as client:
        await client.write_event(Transcript(text=text, context={"conversation_id": "1"}).event())
        while True:
            event = await client.read_event()
            assert event is not None, "the connection was closed"
            if HandledChunk.is_type(event.type):
                chunks += HandledChunk.from_event(event).text
            if NotHandled.is_type(event.type):
                raise AssertionError(NotHandled.from_event(event).text)
            if Handled.is_type(event.type):
                answer = Handled.from_event(event).text
                break
    assert chunks == answer, (chunks, answer)
    return {"text": answer, "user": "", "audio_s": 0.0}


async def error(connect):
    async with connect() as client:
        await client.write_event(AudioStart(rate=16000, width=4, channels=1).event())
        event = await client.read_event()
        while event is not None and not Error.is_type(event.type):
            event = await client.read_event()
        assert event is not None, "the connection was closed without an error"
        told = Error.from_event(event)
        assert await client.read_event() is None, "the connection stays open"
    return {"error": f"{told.code}: {told.text}"}


async def close(connect):
    async with connect() as client:
        await client.write_event(Ping(text="here").event())
        event = await client.read_event()
        assert Pong.is_type(event.type) and Pong.from_event(event).text == "here", event
        # A server drops what it does not know; an error in between is no reason to hang up.
        await client.write_event(Event("run-pipeline"))
        assert Error.is_type((await client.read_event()).type)
        await client.write_event(Ping(text="still").event())
        assert Pong.from_event(await client.read_event()).text == "still"
    return {"code": None, "clean": True}


async def run(cell, url, recording, heard, text):
    address = urllib.parse.urlsplit(url)

    def connect():
        return AsyncTcpClient(address.hostname, address.port)

    cells = {
        "transcription": lambda: transcription(connect, recording),
        "speech": lambda: speech(connect, heard, text),
        "conversation": lambda: conversation(connect, heard, text),
        "error": lambda: error(connect),
        "close": lambda: close(connect),
    }
    return await asyncio.wait_for(cells[cell](), PATIENCE_S)


print(json.dumps(asyncio.run(run(*sys.argv[1:]))))
