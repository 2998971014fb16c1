"""Cartesia's public Python library, REST, unmodified: rest_cartesia.py CELL BASE_URL RECORDING.wav HEARD TEXT

Prints one JSON object. Cells: speech (the code of the vendor's first page; mp3, raw samples and server-sent events, too), error.
"""

import json
import sys

# A script here has the library's name.
sys.path.pop(0)
from cartesia import APIStatusError, Cartesia

cell, base_url, recording, heard, text = sys.argv[1:6]
client = Cartesia(base_url=base_url, api_key="any-key", max_retries=0)
VOICE = {"mode": "id", "id": "e07c00bc-4134-4eae-9ea4-1a55fb45746b"}


def generate(**output_format):
    response = client.tts.generate(model_id="sonic-3", transcript=text, voice=VOICE, output_format=output_format)
    return response.read()


def speech():
    wav = generate(container="wav", encoding="pcm_f32le", sample_rate=44100)
    raw = generate(container="raw", encoding="pcm_mulaw", sample_rate=8000)
    mp3 = generate(container="mp3", sample_rate=44100, bit_rate=128000)
    events = list(
        client.tts.generate_sse(
            model_id="sonic-3",
            transcript=text,
            voice=VOICE,
            output_format={"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16000},
        )
    )
    streamed = b"".join(event.audio for event in events if event.type == "chunk")
    assert events[-1].type == "done", events[-1]
    seconds = (len(wav) - 44) / 4 / 44100
    assert abs(seconds - len(raw) / 8000) < 0.3 and abs(seconds - len(mp3) / 16000) < 0.3, (seconds, len(raw), len(mp3))
    assert abs(seconds - len(streamed) / 32000) < 0.3, (seconds, len(streamed))
    with open(heard, "wb") as file:
        file.write(wav)
    return {"audio_s": seconds, "mp3_bytes": len(mp3)}


def error():
    try:
        generate(container="ogg", sample_rate=44100)
    except APIStatusError as refused:
        return {"error": f"{refused.status_code}: {refused.response.json()['message']}"}
    return {}


print(json.dumps({"speech": speech, "error": error}[cell]()))
