"""Drives the stock Python package funasr-client: CELL BASE_URL RECORDING HEARD TEXT."""

import json
import sys
import threading
import time
import wave

from funasr_client import funasr_client

CHUNK_S = 0.06


def chunks(path):
    with wave.open(path, "rb") as recording:
        while frames := recording.readframes(int(recording.getframerate() * CHUNK_S)):
            yield frames


def connect(url, got, **settings):
    return funasr_client(url, callback=got.append, chunk_size=(5, 10, 5), audio_fs=16000, **settings)


def speak(client, recording):
    for frames in chunks(recording):
        client.send(frames)
        time.sleep(CHUNK_S)


def words(got, mode):
    return " ".join(message["text"] for message in got if message["mode"] == mode and message["text"])


def transcription(url, recording):
    heard = {}
    for mode, final in [("2pass", "2pass-offline"), ("online", "online"), ("offline", "offline")]:
        got = []
        client = connect(url, got, mode=mode, wav_name=mode, hotwords={"voxbridge": 20}, itn=True)
        with client:
            speak(client, recording)
        assert client.received_final, f"{mode}: no final message"
        assert all(message["wav_name"] == mode for message in got), got
        assert [message["is_final"] for message in got[-1:]] == [True], got
        heard[mode] = words(got, final)
        partial = "".join(message["text"] for message in got if message["mode"] == "2pass-online")
        assert mode != "2pass" or heard[mode].startswith(partial), (partial, heard[mode])
    assert len(set(heard.values())) == 1, heard
    return {"text": heard["2pass"]}


def error(url):
    got = []
    answered = threading.Event()
    client = funasr_client(url, mode="3pass", callback=lambda message: (got.append(message), answered.set()))
    client.connect()
    answered.wait(10)
    client.close(timeout=1)
    return {"error": next(message["error"] for message in got if "error" in message)}


def close(url, recording):
    got = []
    client = connect(url, got, mode="2pass")
    client.connect()
    client.send(next(chunks(recording)))
    socket = client._ws
    client.close(timeout=20)
    return {"code": socket.close_code, "clean": client.received_final}


def main():
    cell, base, recording = sys.argv[1:4]
    url = base.replace("http", "ws", 1)
    results = {
        "transcription": lambda: transcription(url, recording),
        "error": lambda: error(url),
        "close": lambda: close(url, recording),
    }
    print(json.dumps(results[cell]()))


if __name__ == "__main__":
    main()
