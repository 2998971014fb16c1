"""AssemblyAI's public Python library, unmodified: assemblyai.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object, which tests/clients/README of the matrix describes. Cells: transcription, error, close.
"""

import json
import sys
import threading

import sound

# This script has the library's name, and stands in front of it.
sys.path.pop(0)
from assemblyai.streaming import v3

cell, base_url, recording = sys.argv[1:4]
host = base_url.replace("http", "ws", 1)


class Session:
    """One session, whose events are collected."""

    def __init__(self):
        self.turns, self.errors, self.began, self.ended = [], [], threading.Event(), threading.Event()
        self.client = v3.RealTimeTranscriber(v3.RealTimeTranscriberOptions(api_host=host, api_key="any-key"))
        self.client.on(v3.RealTimeEvents.Begin, lambda _, event: self.began.set())
        self.client.on(v3.RealTimeEvents.Turn, lambda _, event: self.turns.append(event))
        self.client.on(v3.RealTimeEvents.Termination, lambda _, event: self.ended.set())
        self.client.on(v3.RealTimeEvents.Error, lambda _, error: self.errors.append(error))

    def open(self, **params):
        self.client.connect(v3.RealTimeParameters(**params))

    def finals(self):
        return " ".join(turn.transcript for turn in self.turns if turn.end_of_turn and turn.turn_is_formatted)


def stream(session):
    session.open(sample_rate=16000, encoding="pcm_s16le", format_turns=True, keyterms_prompt=["Dashwood"])
    assert session.began.wait(10), session.errors
    for piece in sound.spoken(recording):
        session.client.stream(piece)
    session.client.force_endpoint()


session = Session()
if cell == "transcription":
    stream(session)
    sound.wait_until(session.finals, 25)
    session.client.disconnect(terminate=True)
    print(json.dumps({"text": session.finals(), "terminated": session.ended.is_set()}))
elif cell == "error":
    session.open(sample_rate=16000, encoding="ogg_opus")
    sound.wait_until(lambda: session.errors)
    session.client.disconnect()
    print(json.dumps({"error": f"{session.errors[0].code}: {session.errors[0]}"}))
elif cell == "close":
    session.open(sample_rate=16000)
    assert session.began.wait(10), session.errors
    session.client.disconnect(terminate=True)
    # The library's own thread has read the close frame by then, or closes itself.
    code = getattr(session.client._websocket, "close_code", None)
    print(json.dumps({"code": code, "clean": session.ended.is_set() and not session.errors}))
else:
    sys.exit(f"no cell {cell}")
