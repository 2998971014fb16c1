"""Soniox's public Python library, unmodified: soniox.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription, error and close of speech to text; speech and interruption of text to speech.
"""

import json
import sys
import threading

import sound

# This script has the library's name, and stands in front of it.
sys.path.pop(0)
import soniox
from soniox.types.realtime import RealtimeSTTConfig, RealtimeTTSConfig

RATE = 24000
cell, base_url, recording, heard, text = sys.argv[1:6]
url = base_url.replace("http", "ws", 1) + "/transcribe-websocket"
tts_url = base_url.replace("http", "ws", 1) + "/tts-websocket"
client = soniox.SonioxClient(api_key="any-key", websocket_base_url=url, tts_websocket_base_url=tts_url)


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
    for piece in sound.spoken(recording):
        session.send_byte_chunk(piece)
    session.finalize()
    session.finish()


def speech_config(stream_id):
    return RealtimeTTSConfig(
        stream_id=stream_id, model="tts-rt-v1", language="en", voice="any-voice", audio_format="pcm_s16le", sample_rate=RATE
    )


def speak():
    """A text in pieces, as a model writes it."""
    with client.realtime.tts.connect(config=speech_config("one")) as session:
        session.send_text_chunks(word + " " for word in text.split())
        return b"".join(session.receive_audio_chunks())


def interrupt():
    """A long text that is cancelled after its first audio."""
    before = late = b""
    cancelled = terminated = False
    with client.realtime.tts.connect(config=speech_config("one")) as session:
        session.send_text_chunk(f"{text}. " * 10, text_end=True)
        for event in session.receive_events():
            audio = event.audio_bytes() or b""
            terminated |= event.terminated
            if audio and not cancelled:
                before += audio
                session.cancel()
                cancelled = True
            elif terminated:
                late += audio
    return {"audio_s": sound.seconds(before, RATE), "stopped": terminated, "late_audio_s": sound.seconds(late, RATE)}


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
elif cell == "speech":
    audio = speak()
    sound.write(heard, audio, RATE)
    print(json.dumps({"audio_s": sound.seconds(audio, RATE)}))
elif cell == "interruption":
    print(json.dumps(interrupt()))
else:
    sys.exit(f"no cell {cell}")
