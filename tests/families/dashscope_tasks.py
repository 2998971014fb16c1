"""Drives the stock Python package dashscope, Recognition and tts_v2: CELL BASE_URL RECORDING HEARD TEXT."""

import importlib.abc
import importlib.util
import json
import sys
import threading
import time
import types
import wave

# Parts of the package for training and counting tokens, and what they import. Nothing of them is used here.
UNUSED = ("dashscope.finetune.", "dashscope.v2", "fastapi", "opentelemetry", "tiktoken", "uvicorn", "yaml")


class Unused(types.ModuleType):
    """A module that has everything, as empty classes."""

    __path__ = []

    def __getattr__(self, name):
        return type(name, (), {})


class UnusedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self) if name.startswith(UNUSED) else None

    def create_module(self, spec):
        return Unused(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, UnusedFinder())

import dashscope  # noqa: E402
from dashscope.common.error import InvalidTask  # noqa: E402
from dashscope.audio.asr import Recognition, RecognitionCallback  # noqa: E402
from dashscope.audio.tts_v2 import AudioFormat, ResultCallback, SpeechSynthesizer  # noqa: E402

CHUNK_S = 0.1
RATE_HZ = 24000


class Heard(RecognitionCallback):
    def __init__(self):
        self.sentences, self.partials, self.errors, self.events = [], [], [], []

    def on_open(self):
        self.events.append("open")

    def on_complete(self):
        self.events.append("complete")

    def on_close(self):
        self.events.append("close")

    def on_error(self, result):
        self.errors.append(f"{result.code}: {result.message}")

    def on_event(self, result):
        sentence = result.get_sentence()
        is_end = result.is_sentence_end(sentence)
        (self.sentences if is_end else self.partials).append(sentence)


def recognize(recording, format="pcm"):
    heard = Heard()
    recognition = Recognition(
        model="paraformer-realtime-v2", format=format, sample_rate=16000, callback=heard, language_hints=["en"]
    )
    try:
        recognition.start()
    except InvalidTask:
        # The task was refused before `start` came back.
        assert heard.errors
        return heard
    with wave.open(recording, "rb") as audio:
        while frames := audio.readframes(int(audio.getframerate() * CHUNK_S)):
            if heard.errors:
                return heard
            recognition.send_audio_frame(frames)
            time.sleep(CHUNK_S)
    recognition.stop()
    return heard


def transcription(recording):
    heard = recognize(recording)
    assert not heard.errors and "complete" in heard.events, (heard.errors, heard.events)
    assert all(it["begin_time"] < it["end_time"] for it in heard.sentences), heard.sentences
    whole = Recognition(model="paraformer-realtime-v2", format="wav", sample_rate=16000, callback=None).call(recording)
    sentences = whole.get_sentence()
    assert sentences, whole
    return {"text": " ".join(it["text"] for it in heard.sentences)}


def synthesizer(callback=None, format=AudioFormat.PCM_24000HZ_MONO_16BIT, **settings):
    return SpeechSynthesizer(model="cosyvoice-v3", voice="longxiaochun", format=format, callback=callback, **settings)


def speech(heard, text):
    audio = synthesizer().call(text)
    # The default is mp3.
    compressed = SpeechSynthesizer(model="cosyvoice-v3", voice="longxiaochun").call(text)
    with open(heard, "wb") as file:
        file.write(compressed)
    opus = synthesizer(format=AudioFormat.OGG_OPUS_24KHZ_MONO_32KBPS).call(text)
    wav = synthesizer(format=AudioFormat.WAV_24000HZ_MONO_16BIT).call(text)
    assert opus[:4] == b"OggS" and wav[:4] == b"RIFF" and len(wav) - 44 == len(audio), (opus[:4], len(wav), len(audio))
    # Streamed texts are spoken in order; a flush speaks what was collected.
    streamed = Stream()
    client = synthesizer(streamed)
    client.streaming_call(text)
    client.streaming_flush()
    client.streaming_call("The end.")
    client.streaming_complete(30000)
    assert streamed.completed and len(streamed.audio) > len(audio), (len(streamed.audio), len(audio))
    return {"audio_s": len(audio) / 2 / RATE_HZ}


class Stream(ResultCallback):
    def __init__(self):
        self.audio, self.completed, self.error = bytearray(), False, None
        self.started = threading.Event()

    def on_data(self, data):
        self.audio += data
        self.started.set()

    def on_complete(self):
        self.completed = True

    def on_error(self, message):
        self.error = message


def interruption(text):
    streamed = Stream()
    client = synthesizer(streamed)
    client.streaming_call(" ".join([text] * 20))
    client.streaming_flush()
    streamed.started.wait(20)
    time.sleep(0.5)
    client.streaming_cancel()
    before = len(streamed.audio)
    time.sleep(1)
    late = len(streamed.audio) - before
    return {"audio_s": before / 2 / RATE_HZ, "stopped": streamed.completed, "late_audio_s": late / 2 / RATE_HZ}


def error(recording):
    heard = recognize(recording, format="mp3")
    try:
        synthesizer(additional_params={"format": "amr"}).call("Hello.")
        refused = ""
    except Exception as problem:
        refused = str(problem)
    assert "format" in refused, refused
    return {"error": heard.errors[0]}


def close(recording):
    heard = recognize(recording)
    # The client closes by itself and tells no code.
    return {"code": None, "clean": heard.events[-2:] == ["complete", "close"] and not heard.errors}


def main():
    cell, base, recording, heard, text = sys.argv[1:6]
    dashscope.api_key = "any"
    dashscope.base_websocket_api_url = base.replace("http", "ws", 1) + "/api-ws/v1/inference"
    cells = {
        "transcription": lambda: transcription(recording),
        "speech": lambda: speech(heard, text),
        "interruption": lambda: interruption(text),
        "error": lambda: error(recording),
        "close": lambda: close(recording),
    }
    print(json.dumps(cells[cell]()))


if __name__ == "__main__":
    main()
