"""Pipecat's service for OpenAI's Live API, unmodified: pipecat_services.live.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: conversation (two turns), close.
"""

import asyncio
import json
import sys
import time

import sound
from loguru import logger

logger.remove()
logger.add(sys.stderr, level="WARNING")

# The directory of the scripts has names of packages.
sys.path.pop(0)
from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    LLMContextFrame,
    SpeechOutputAudioRawFrame,
    TranscriptionFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.live.llm import OpenAILiveLLMService
from pipecat.workers.runner import WorkerRunner

RATE, OUT_HZ = 16000, 24000
PIECE_S = 0.02
PATIENCE_S = 25
cell, base_url, recording, heard = sys.argv[1:5]


class Frames(FrameProcessor):
    """Keeps all frames that pass."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        self.kept.append(frame)
        await self.push_frame(frame, direction)


class Running:
    """A service that runs, and the frames that left it in both directions."""

    def __init__(self, service):
        self.frames, self.started = [], asyncio.Event()
        stages = [Frames(self.frames), service, Frames(self.frames)]
        params = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=OUT_HZ)
        self.worker = PipelineWorker(Pipeline(stages), params=params, idle_timeout_secs=None)
        self.worker.add_event_handler("on_pipeline_started", lambda *_: self.started.set())

    async def __aenter__(self):
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)
        self.running = asyncio.create_task(runner.run())
        await asyncio.wait_for(self.started.wait(), PATIENCE_S)
        return self

    async def __aexit__(self, *_):
        await self.worker.end()
        await asyncio.wait_for(self.running, PATIENCE_S)

    def of(self, kind):
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def errors(self):
        return [frame.error for frame in self.of(ErrorFrame)]


def start():
    """The service in a pipeline, and what it says of its session."""
    url = base_url.replace("http", "ws", 1) + "/v1/live/sessions"
    service = OpenAILiveLLMService(api_key="any", base_url=url)
    started = asyncio.Event()

    async def note_start(_, session):
        assert session.model == "gpt-live-1", session
        started.set()

    service.add_event_handler("on_session_started", note_start)
    return service, started, Running(service)


async def send(running, pieces, enough=lambda: False):
    for piece in pieces:
        if enough() or running.errors():
            return
        await running.worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=RATE, num_channels=1))
        await asyncio.sleep(PIECE_S)


async def turn(running):
    """Words of the user and of the model, and the model's audio."""
    kinds = TranscriptionFrame, TTSTextFrame, SpeechOutputAudioRawFrame
    before = [len(running.of(kind)) for kind in kinds]
    new = lambda: [running.of(kind)[count:] for kind, count in zip(kinds, before)]
    changed = [0, time.monotonic()]

    def is_over():
        users, words, audio = new()
        if len(audio) != changed[0]:
            changed[:] = len(audio), time.monotonic()
        return users and words and audio and time.monotonic() - changed[1] > 1.5

    await send(running, sound.pieces(recording, PIECE_S))
    await send(running, [bytes(int(2 * RATE * PIECE_S))] * int(PATIENCE_S / PIECE_S), is_over)
    users, words, audio = new()
    text = "".join(frame.text for frame in words).strip()
    return " ".join(frame.text.strip() for frame in users), text, b"".join(frame.audio for frame in audio)


async def main():
    service, started, running = start()
    async with running:
        await running.worker.queue_frame(LLMContextFrame(LLMContext()))
        await asyncio.wait_for(started.wait(), 10)
        if cell == "conversation":
            first, second = await turn(running), await turn(running)
            assert len(first[0]) < 1.5 * len(second[0]) + 10 and first[1], (first[:2], second[:2])
            sound.write(heard, second[2], OUT_HZ)
            result = {"user": second[0], "text": second[1], "audio_s": sound.seconds(second[2], OUT_HZ)}
        else:
            await send(running, [bytes(int(2 * RATE * PIECE_S))] * 50)
            result = {}
        began = time.monotonic()
    # The service waits for the end of the session, for 10 s at most.
    took_s = time.monotonic() - began
    assert not running.errors(), running.errors()
    return {**result, "clean": took_s < 8, "took_s": took_s}


print(json.dumps(asyncio.run(asyncio.wait_for(main(), 80))))
