"""Soniox's public Python library, unmodified: soniox.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription, error, close.
"""

import json
import sys
import threading
import time
import wave

# This script has the library's name, and stands in front of it.
sys.path.pop(0)
import soniox
from soniox.types.realtime import RealtimeSTTConfig

CHUNK_S = 0.05
cell, base_url, recording = sys.argv[1:4]
url = base_url.replace("http", "ws", 1) + "/transcribe-websocket"
client = soniox.SonioxClient(api_key="any-key", websocket_base_url=url)


def config(**changes):
    fields = {
        "model": "stt-rt-v5",
        "audio_format": "pcm_s16le",
        "sample_rate": 16000,
        "num_channels": 1,
        "language_hints": ["en"],
        "enable_endpoint_detection": True,
        "context": {"terms": ["Dashwood"], "text": "A novel."},
    }
    return RealtimeSTTConfig(**{**fields, **changes})


def stream(session):
    with wave.open(recording) as file:
        while chunk := file.readframes(int(file.getframerate() * CHUNK_S)):
            session.send_byte_chunk(chunk)
            time.sleep(CHUNK_S)
    session.finalize()
    session.finish()


if cell == "transcription":
    words, marks, finished = [], [], False
    with client.realtime.stt.connect(config=config()) as session:
        threading.Thread(target=stream, args=(session,), daemon=True).start()
        for event in session.receive_events():
            assert event.error_code is None, event
            for token in event.tokens:
                if token.is_final:
                    (marks if token.text.startswith("<") else words).append(token.text)
            finished |= event.finished
    print(json.dumps({"text": "".join(words).strip(), "marks": marks, "finished": finished}))
elif cell == "error":
    with client.realtime.stt.connect(config=config(audio_format="auto")) as session:
        event = session.receive_event()
        print(json.dumps({"error": f"{event.error_code}: {event.error_message}"}))
elif cell == "close":
    with client.realtime.stt.connect(config=config()) as session:
        session.finish()
        events = list(session.receive_events())
        code = session._ws.close_code
    print(json.dumps({"code": code, "clean": bool(events) and events[-1].finished}))
else:
    sys.exit(f"no cell {cell}")
