"""Drives the stock Python package whisper-live: CELL BASE_URL RECORDING HEARD TEXT."""

import io
import json
import sys
import time
import types
import wave
from urllib.parse import urlsplit

# The client imports them for its own microphone and for files, which it does not use here.
for unused in ["pyaudio", "av", "scipy"]:
    sys.modules[unused] = types.ModuleType(unused)
sys.modules["pyaudio"].paInt16 = 8

# Importing this directory's own file of that name would hide the package.
sys.path = [path for path in sys.path if not path.endswith("families")]

from whisper_live.client import StreamingTranscriptionClient  # noqa: E402

CHUNK_S = 0.1


def connect(base, **options):
    place = urlsplit(base)
    use_wss = place.scheme == "https"
    return StreamingTranscriptionClient(place.hostname, place.port, use_wss=use_wss, **options)


def speak(client, recording):
    with wave.open(recording, "rb") as audio:
        while frames := audio.readframes(int(audio.getframerate() * CHUNK_S)):
            client.send(frames, pcm_format="int16")
            time.sleep(CHUNK_S)


def transcription(base, recording):
    committed, partial = [], []
    client = connect(
        base,
        lang="en",
        send_last_n_segments=3,
        on_committed_transcript=lambda text, segments: committed.append((text, segments[0])),
        on_partial_transcript=lambda text, segments: partial.append(text),
    )
    with client:
        speak(client, recording)
    assert [text for text, _ in committed] == [it["text"] for it in client.transcript], committed
    assert all(float(it["start"]) < float(it["end"]) for _, it in committed), committed
    assert all(committed[0][0].startswith(text) for text in partial[:1]), partial
    return {"text": " ".join(text for text, _ in committed)}


def error(base):
    # A number of segments below 1. The client prints the server's message.
    printed, sys.stdout = sys.stdout, io.StringIO()
    client = connect(base, send_last_n_segments=0, ready_timeout=10)
    try:
        client.connect()
    except RuntimeError:
        wait_until(lambda: shown_error(sys.stdout))
        return {"error": shown_error(sys.stdout)}
    finally:
        sys.stdout = printed


def shown_error(printed):
    lines = printed.getvalue().splitlines()
    return next((line for line in lines if line.startswith("Message from Server: ")), None)


def wait_until(condition):
    deadline = time.time() + 8
    while not condition() and time.time() < deadline:
        time.sleep(0.05)


def close(base, recording):
    codes = []
    client = connect(base, lang="en", on_close=lambda: codes.append(None))
    client.connect()
    speak(client, recording)
    started = time.time()
    client.close()
    took = time.time() - started
    wait_until(lambda: codes)
    # The client does not tell the code.
    return {"code": None, "clean": bool(codes) and took < 14}


def main():
    cell, base, recording = sys.argv[1:4]
    # The client prints on stdout.
    result, sys.stdout = sys.stdout, sys.stderr
    results = {
        "transcription": lambda: transcription(base, recording),
        "error": lambda: error(base),
        "close": lambda: close(base, recording),
    }
    print(json.dumps(results[cell]()), file=result, flush=True)


if __name__ == "__main__":
    main()
