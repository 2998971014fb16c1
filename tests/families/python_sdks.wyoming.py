"""wyoming-bench, unmodified, which measures Wyoming's servers: python_sdks.wyoming.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription and speech, each whole and as a stream.
"""

import asyncio
import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

import sound

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
from wyoming.asr import Transcribe
from wyoming_bench.const import MODE_NON_STREAMING, MODE_STREAMING
from wyoming_bench.info import advertised_streaming, fetch_info
from wyoming_bench.stt.client import measure_stt_once
from wyoming_bench.stt.corpus import AudioInput
from wyoming_bench.tts.client import synthesize_audio

IN_HZ = 16000
PATIENCE_S = 30
cell, base_url, recording, heard, text = sys.argv[1:6]
server = urlsplit(base_url).hostname, urlsplit(base_url).port


async def transcription():
    sample = AudioInput("recording", "", IN_HZ, 2, 1, sound.read(recording, IN_HZ), Path(recording))
    turns = []
    for mode in (MODE_NON_STREAMING, MODE_STREAMING):
        measured = await measure_stt_once(
            *server, mode, sample, Transcribe(language="en"), 1024, PATIENCE_S, PATIENCE_S, trailing_silence=0.5
        )
        assert measured.ok, measured.error
        turns.append(measured.hypothesis)
    return {"turns": turns}


async def speech():
    whole, streamed = [
        await synthesize_audio(*server, mode, text, None, None, PATIENCE_S, PATIENCE_S)
        for mode in (MODE_NON_STREAMING, MODE_STREAMING)
    ]
    audio, rate_hz, width, channels = streamed
    assert (width, channels) == (2, 1) and len(whole[0]) / 2 < len(audio) < 2 * len(whole[0])
    sound.write(heard, audio, rate_hz)
    return {"audio_s": sound.seconds(audio, rate_hz)}


async def run():
    info = await fetch_info(*server, PATIENCE_S)
    assert advertised_streaming(info, "asr") and advertised_streaming(info, "tts"), info
    return await {"transcription": transcription, "speech": speech}[cell]()


print(json.dumps(asyncio.run(run())))
