"""Deepgram's public Python library for Flux text to speech, unmodified:
deepgram.speak.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: speech, error, close.
"""

import json
import sys

import sound
from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v2.types import SpeakV2Configure, SpeakV2Speak
from websockets.exceptions import ConnectionClosed, InvalidStatus

RATE = 24000
cell, base_url, _recording, heard, text = sys.argv[1:6]
sockets = base_url.replace("http", "ws", 1)
environment = DeepgramClientEnvironment(base=base_url, production=sockets, agent=sockets, agent_rest=base_url)
client = DeepgramClient(api_key="any-key", environment=environment)


def connect(**changes):
    return client.speak.v2.connect(**{"model": "flux-alexis-en", "encoding": "linear16", "sample_rate": RATE, **changes})


def receive(connection, last, events):
    """The audio before the message of this type; other messages are appended."""
    audio = b""
    while True:
        message = connection.recv()
        if isinstance(message, bytes):
            audio += message
            continue
        events.append(message)
        if message.type == last:
            return audio


def say(connection, words, events):
    for word in words.split():
        connection.send_speak(SpeakV2Speak(text=f"{word} "))
    connection.send_flush()
    return receive(connection, "Flushed", events)


def speech():
    events = []
    with connect() as connection:
        audio = say(connection, text, events)
        second = say(connection, "The second turn. It has two sentences.", events)
        # What is said now is not heard to its end.
        connection.send_speak(SpeakV2Speak(text="One sentence is begun. " * 20))
        receive(connection, "SpeechStarted", events)
        connection.send_interrupt()
        receive(connection, "SpeechInterrupted", events)
        connection.send_interrupt()
        receive(connection, "Warning", events)
        connection.send_configure(SpeakV2Configure(speed=1.2))
        receive(connection, "ConfigureFailure", events)
        connection.send_close()
        receive(connection, "SessionMetadata", events)
    turns = [event for event in events if event.type in ("SpeechMetadata", "SpeechStarted")]
    ids = [event.speech_id for event in turns]
    assert ids[0] == ids[1] != ids[2] == ids[3] != ids[4], ids
    metadata = turns[1]
    assert abs(metadata.audio_duration_ms - 1000 * sound.seconds(audio, RATE)) <= 1, metadata
    assert len(text) <= metadata.input_character_count <= len(text) + 1, metadata
    sound.write(heard, audio, RATE)
    return {
        "audio_s": sound.seconds(audio, RATE),
        "second_audio_s": sound.seconds(second, RATE),
        "events": [event.type for event in events],
        "session": events[-1].dict(),
    }


def error():
    try:
        with connect(encoding="mp3"):
            return {}
    except InvalidStatus as refusal:
        return {"error": f"{refusal}: {refusal.response.headers['dg-error']}"}


def close():
    with connect() as connection:
        connection.send_close()
        events = []
        receive(connection, "SessionMetadata", events)
        try:
            connection.recv()
        except ConnectionClosed as end:
            return {"code": end.rcvd.code, "clean": end.rcvd.code == 1000}
    return {"clean": False}


print(json.dumps({"speech": speech, "error": error, "close": close}[cell]()))
