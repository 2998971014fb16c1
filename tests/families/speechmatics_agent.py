"""Speechmatics' public Python library for Agent STT, unmodified: speechmatics_agent.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: transcription, error, close.
"""

import asyncio
import json
import sys
import wave

# The script of the other protocol has the library's name, and stands in front of it.
sys.path.pop(0)
from speechmatics.agent_stt import (
    AdditionalVocabEntry,
    AgentSttAsyncClient,
    AudioFormat,
    ServerMessageType,
    TranscriptionConfig,
    TurnConfig,
    TurnDetectionMode,
)
from speechmatics.rt import AudioEncoding

CHUNK_S = 0.05
SILENCE_S = 1.5
RATE = 16000
PATIENCE_S = 20
cell, base_url, recording = sys.argv[1:4]
url = base_url.replace("http", "ws", 1) + "/v2"


def client(mode=TurnDetectionMode.VAD, **changes):
    fields = {
        "language": "en",
        "enable_partials": True,
        "emit_sentences": True,
        "additional_vocab": [AdditionalVocabEntry("Dashwood", ["dash wood"])],
    }
    return AgentSttAsyncClient(
        api_key="any-key",
        url=url,
        app="test/1.0",
        transcription_config=TranscriptionConfig(**{**fields, **changes}),
        turn_config=TurnConfig(turn_detection_mode=mode),
        audio_format=AudioFormat(encoding=AudioEncoding.PCM_S16LE, sample_rate=RATE, chunk_size=1024),
    )


async def say(agent):
    """Sends the recording as it would be spoken, and silence behind it."""
    with wave.open(recording) as file:
        pcm = file.readframes(file.getnframes()) + bytes(int(SILENCE_S * RATE) * 2)
    step = int(CHUNK_S * RATE) * 2
    for at in range(0, len(pcm), step):
        await agent.send_audio(pcm[at : at + step])
        await asyncio.sleep(CHUNK_S)


async def one_turn(mode):
    """What one turn of the recording is for the client: its words, and the kinds of its messages in their order."""
    agent = client(mode)
    ended = asyncio.Event()
    agent.on(ServerMessageType.END_OF_TURN, lambda _: ended.set())
    async with agent:
        await say(agent)
        if mode == TurnDetectionMode.EXTERNAL:
            assert not ended.is_set(), "the turn ended before the client said so"
            await agent.force_end_of_utterance()
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        await agent.send_message({"message": "GetSpeakers"})
    quiet = ["AudioAdded", "AddPartialSegment"]
    kinds = [event["message"] for event in agent.events if event["message"] not in quiet]
    segment = agent.segments[0]
    assert 0 <= segment.start_time < segment.end_time <= 20, segment
    return agent.transcript, kinds


async def transcription():
    text, kinds = await one_turn(TurnDetectionMode.VAD)
    first = ["RecognitionStarted", "SpeechStarted", "StartOfTurn"]
    assert kinds[:3] == first and kinds[-4:-2] == ["SpeechEnded", "EndOfTurn"], kinds
    assert kinds[-2:] == ["SpeakersResult", "EndOfTranscript"], kinds
    external, kinds = await one_turn(TurnDetectionMode.EXTERNAL)
    turn = ["RecognitionStarted", "StartOfTurn", "AddSegment", "EndOfTurn", "SpeakersResult", "EndOfTranscript"]
    assert kinds == turn, kinds
    return {"text": text, "external": external}


async def error():
    try:
        async with client(additional_vocab=[{"word": "x"}]):
            pass
    except Exception as problem:
        return {"error": str(problem)}
    return {}


async def close():
    agent = client()
    async with agent:
        connection = agent._transport._websocket
    return {"code": connection.close_code, "clean": agent.session_error is None}


cells = {"transcription": transcription, "error": error, "close": close}
print(json.dumps(asyncio.run(cells[cell]())))
