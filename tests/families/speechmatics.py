"""Speechmatics' public Python library, unmodified: speechmatics.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription, error, close.
"""

import asyncio
import json
import sys
import wave

# This script has the library's name, and stands in front of it.
sys.path.pop(0)
from speechmatics.rt import AsyncClient, AudioEncoding, AudioFormat, ServerMessageType, TranscriptionConfig, TranscriptResult

CHUNK_S = 0.05
cell, base_url, recording = sys.argv[1:4]
url = base_url.replace("http", "ws", 1) + "/v2"
FORMAT = AudioFormat(encoding=AudioEncoding.PCM_S16LE, sample_rate=16000)


def config(**changes):
    fields = {
        "language": "en",
        "enable_partials": True,
        "additional_vocab": [{"content": "Dashwood", "sounds_like": ["dash wood"]}, "Norland"],
        "conversation_config": {"end_of_utterance_silence_trigger": 0.7},
    }
    return TranscriptionConfig(**{**fields, **changes})


async def transcription():
    finals, partials, added, ends = [], [], [], []
    async with AsyncClient(api_key="any-key", url=url) as client:
        client.on(ServerMessageType.ADD_TRANSCRIPT, lambda it: finals.append(TranscriptResult.from_message(it)))
        client.on(ServerMessageType.ADD_PARTIAL_TRANSCRIPT, partials.append)
        client.on(ServerMessageType.AUDIO_ADDED, added.append)
        client.on(ServerMessageType.END_OF_UTTERANCE, ends.append)
        await client.start_session(transcription_config=config(), audio_format=FORMAT)
        sent = 0
        with wave.open(recording) as file:
            while chunk := file.readframes(int(file.getframerate() * CHUNK_S)):
                await client.send_audio(chunk)
                sent += 1
                await asyncio.sleep(CHUNK_S)
        await client.stop_session()
    text = "".join(result.metadata.transcript for result in finals).strip()
    acknowledged = [message["seq_no"] for message in added] == list(range(1, sent + 1))
    return {"text": text, "acknowledged": acknowledged, "partials": len(partials), "ends": len(ends)}


async def error():
    async with AsyncClient(api_key="any-key", url=url) as client:
        try:
            await client.start_session(transcription_config=config(additional_vocab=[{"word": "x"}]), audio_format=FORMAT)
        except Exception as problem:
            return {"error": str(problem)}
    return {}


async def close():
    async with AsyncClient(api_key="any-key", url=url) as client:
        await client.start_session(transcription_config=config(), audio_format=FORMAT)
        connection = client._transport._websocket
        await client.stop_session()
    return {"code": connection.close_code, "clean": client._last_error_reason is None}


cells = {"transcription": transcription, "error": error, "close": close}
print(json.dumps(asyncio.run(cells[cell]())))
