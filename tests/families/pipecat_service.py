"""Runs one of Pipecat's services, unmodified, in a pipeline of its own."""

import asyncio
import sys

from loguru import logger

logger.remove()
logger.add(sys.stderr, level="WARNING")

from pipecat.frames.frames import ErrorFrame, TTSAudioRawFrame, TTSSpeakFrame, TTSStoppedFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.workers.runner import WorkerRunner

PATIENCE_S = 30


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

    def __init__(self, service, rate_in_hz=16000, rate_out_hz=24000):
        self.frames, started = [], asyncio.Event()
        self.started = started
        stages = [Frames(self.frames), service, Frames(self.frames)]
        params = PipelineParams(audio_in_sample_rate=rate_in_hz, audio_out_sample_rate=rate_out_hz)
        self.worker = PipelineWorker(Pipeline(stages), params=params, idle_timeout_secs=None)
        self.worker.add_event_handler("on_pipeline_started", lambda *_: started.set())

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

    async def wait_for(self, kind, count=1):
        for _ in range(PATIENCE_S * 20):
            if len(self.of(kind)) >= count or self.errors():
                break
            await asyncio.sleep(0.05)
        assert not self.errors(), self.errors()
        assert len(self.of(kind)) >= count, [type(frame).__name__ for frame in self.frames]

    async def say(self, text):
        """The audio of a text."""
        before, stops = len(self.of(TTSAudioRawFrame)), len(self.of(TTSStoppedFrame))
        await self.worker.queue_frame(TTSSpeakFrame(text))
        await self.wait_for(TTSStoppedFrame, stops + 1)
        await asyncio.sleep(0.2)
        return b"".join(frame.audio for frame in self.of(TTSAudioRawFrame)[before:])


async def error_of(service):
    """What the users of a service hear of an error, when they have it speak."""
    async with Running(service) as running:
        await running.worker.queue_frame(TTSSpeakFrame("Hello."))
        for _ in range(PATIENCE_S * 20):
            if running.errors():
                return running.errors()[0]
            await asyncio.sleep(0.05)
    return ""
