"""Alibaba's Python client of Qwen-Omni-Realtime (dashscope), unmodified, against voxbridge.

qwen.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. The library's part for training is only imported, and needs a web server and more: stand-ins replace it.
"""

import base64
import json
import queue
import sys
import threading
import time
from unittest.mock import MagicMock

for name in ["agentic_rl", "reinforcement", "reinforcement.common", "reinforcement.common.errors"]:
    sys.modules[f"dashscope.finetune.{name}"] = MagicMock()

import sound
from dashscope.audio.qwen_omni import MultiModality, OmniRealtimeCallback, OmniRealtimeConversation
from dashscope.audio.qwen_omni.omni_realtime import TranscriptionParams

IN_HZ, OUT_HZ = 16000, 24000
PATIENCE_S = 36


class Events(OmniRealtimeCallback):
    def __init__(self):
        self.all = queue.Queue()
        self.closed = threading.Event()
        self.code = None

    def on_event(self, message):
        self.all.put(message)

    def on_close(self, close_status_code, close_msg):
        self.code = close_status_code
        self.closed.set()

    def next(self):
        return self.all.get(timeout=PATIENCE_S)

    def wait_for(self, name):
        while (event := self.next())["type"] != name:
            pass
        return event


CONVERSATION = {
    "output_modalities": [MultiModality.AUDIO, MultiModality.TEXT],
    "voice": "Cherry",
    "instructions": "Answer in one sentence.",
}


def connect(base_url, model="qwen3-omni-flash-realtime", settings=CONVERSATION):
    events = Events()
    url = base_url.replace("http", "ws", 1) + "/api-ws/v1/realtime"
    conversation = OmniRealtimeConversation(model=model, callback=events, url=url, api_key="test-key")
    conversation.connect()
    conversation.update_session(**settings)
    events.wait_for("session.updated")
    return conversation, events


def say(conversation, recording):
    """Sends a recording as it would be spoken, and silence behind it, until the returned event is set."""
    pcm = sound.read(recording, IN_HZ)
    stop = threading.Event()

    def run():
        step, start, at = IN_HZ // 10 * 2, time.monotonic(), 0
        while not stop.wait(max(0, start + at / 2 / IN_HZ - time.monotonic())):
            piece = pcm[at : at + step].ljust(step, b"\0")
            conversation.append_audio(base64.b64encode(piece).decode())
            at += step

    threading.Thread(target=run, daemon=True).start()
    return stop


def transcription(base_url, recording, _heard, _text):
    params = TranscriptionParams(language="en", sample_rate=IN_HZ, input_audio_format="pcm")
    settings = {"output_modalities": [MultiModality.TEXT], "transcription_params": params}
    talk, events = connect(base_url, "qwen3-asr-flash-realtime", settings)
    stop = say(talk, recording)
    event = events.wait_for("conversation.item.input_audio_transcription.completed")
    stop.set()
    talk.end_session()
    talk.close()
    return {"text": event["transcript"].strip()}


def conversation(base_url, recording, heard, _text):
    talk, events = connect(base_url)
    stop = say(talk, recording)
    audio, words, user = b"", "", ""
    while (event := events.next())["type"] != "response.done":
        if event["type"] == "response.audio.delta":
            audio += base64.b64decode(event["delta"])
        elif event["type"] == "response.audio_transcript.delta":
            words += event["delta"]
        elif event["type"] == "conversation.item.input_audio_transcription.completed":
            user = event["transcript"]
    stop.set()
    sound.write(heard, audio, OUT_HZ)
    talk.end_session()
    talk.close()
    return {"text": words.strip(), "user": user.strip(), "audio_s": sound.seconds(audio, OUT_HZ)}


def interruption(base_url, recording, _heard, text):
    talk, events = connect(base_url)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    talk.create_item(item)
    talk.create_response()
    before, late, stopped, stop = b"", b"", False, None
    while (event := events.next())["type"] != "response.done":
        stopped = stopped or (event["type"] == "input_audio_buffer.speech_started" and before != b"")
        if event["type"] == "response.audio.delta":
            audio = base64.b64decode(event["delta"])
            before, late = (before, late + audio) if stopped else (before + audio, late)
            stop = stop or say(talk, recording)
    stopped = stopped and event["response"]["status"] == "cancelled"
    if stop:
        stop.set()
    talk.close()
    return {"audio_s": sound.seconds(before, OUT_HZ), "stopped": stopped, "late_audio_s": sound.seconds(late, OUT_HZ)}


def error(base_url, _recording, _heard, _text):
    talk, events = connect(base_url)
    talk.update_session(output_modalities=[MultiModality.TEXT], turn_detection_type="no_such_detection")
    problem = events.wait_for("error")["error"]
    talk.close()
    return {"error": f"{problem['code']}: {problem['message']}"}


def close(base_url, _recording, _heard, _text):
    talk, events = connect(base_url)
    talk.append_audio(base64.b64encode(bytes(3200)).decode())
    talk.end_session()
    events.closed.wait(5)
    return {"code": events.code, "clean": True}


CELLS = {"transcription": transcription, "conversation": conversation, "interruption": interruption, "error": error, "close": close}


def main():
    cell, base_url, recording, heard, text = sys.argv[1:6]
    print(json.dumps(CELLS[cell](base_url, recording, heard, text)))


main()
