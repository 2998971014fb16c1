"""Gladia's public Python library, unmodified: gladia.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription, error, close.
"""

import json
import sys
import threading

import sound
from gladiaio_sdk import GladiaClient

cell, base_url, recording = sys.argv[1:4]
client = GladiaClient(api_key="any-key", api_url=base_url)
OPTIONS = {
    "encoding": "wav/pcm",
    "bit_depth": 16,
    "sample_rate": 16000,
    "channels": 1,
    "endpointing": 0.5,
    "language_config": {"languages": ["en"]},
    "realtime_processing": {"custom_vocabulary": True, "custom_vocabulary_config": {"vocabulary": ["Norland", {"value": "Dashwood"}]}},
    "messages_config": {"receive_partial_transcripts": True, "receive_acknowledgments": True},
}


class Session:
    """One session, whose events are collected."""

    def __init__(self, options):
        self.messages, self.errors, self.ended = [], [], threading.Event()
        self.closed = None
        self.session = client.live_v2().start_session(options)
        self.session.on("message", self.messages.append)
        self.session.on("error", self.errors.append)
        self.session.on("ended", self.end)

    def end(self, event):
        self.closed = event
        self.ended.set()

    def texts(self):
        finals = [it for it in self.messages if it.type == "transcript" and it.data.is_final]
        return " ".join(it.data.utterance.text for it in finals).strip()


session = Session({**OPTIONS, "encoding": "mp3"} if cell == "error" else OPTIONS)
if cell == "transcription":
    assert session.session.wait_until_ready(10), session.errors
    sent = 0
    for piece in sound.spoken(recording):
        session.session.send_audio(piece)
        sent += len(piece)
    session.session.stop_recording()
    assert session.ended.wait(25), session.errors
    acknowledged = max((it.data.byte_range[1] for it in session.messages if it.type == "audio_chunk"), default=0)
    kinds = sorted({message.type for message in session.messages})
    print(json.dumps({"text": session.texts(), "kinds": kinds, "acknowledged": acknowledged == sent}))
elif cell == "error":
    sound.wait_until(lambda: session.errors)
    print(json.dumps({"error": str(session.errors[0])}))
elif cell == "close":
    assert session.session.wait_until_ready(10), session.errors
    session.session.stop_recording()
    assert session.ended.wait(15), session.errors
    print(json.dumps({"code": session.closed.code, "clean": not session.errors}))
else:
    sys.exit(f"no cell {cell}")
