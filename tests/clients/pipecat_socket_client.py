"""Talks through pipecat-ai's WebsocketClientTransport, unmodified: pipecat_socket_client.py URL MODE RECORDING.wav HEARD.wav

The recording is 16 kHz, mono, 16 bit. In MODE `ask`, one answer is heard to its end, then a text is typed and answered. In MODE
`interrupt`, the recording interrupts the first answer. Writes the audio of the first answer to HEARD.wav and prints as JSON what
came.
"""

import asyncio
import json
import sys
import time
import wave

from loguru import logger

logger.remove()

from pipecat.frames.frames import (
    InputAudioRawFrame,
    InputTransportMessageFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputTransportMessageUrgentFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.processors.frameworks.rtvi import models as rtvi
from pipecat.transports.websocket.client import WebsocketClientParams, WebsocketClientTransport
from pipecat.workers.runner import WorkerRunner

RATE = 16000
CHUNK_S = 0.04
PATIENCE_S = 60

problems = []
logger.add(lambda line: problems.append(str(line)), level="WARNING")


class Tap(FrameProcessor):
    """Notes what the transport gives, and passes nothing of it back to the server."""

    def __init__(self):
        super().__init__()
        self.kinds, self.messages, self.audio, self.rates = [], [], [], set()
        self.changed = asyncio.Condition()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        kind = None
        match frame:
            case InputTransportMessageFrame() if direction == FrameDirection.DOWNSTREAM:
                kind = frame.message["type"]
                self.messages.append(frame.message)
            case InputAudioRawFrame():
                kind = "audio"
                self.rates.add((frame.sample_rate, frame.num_channels))
                self.audio.append(frame.audio)
            case InterruptionFrame():
                kind = "interruption"
        if kind:
            async with self.changed:
                if self.kinds[-1:] != [kind]:
                    self.kinds.append(kind)
                self.changed.notify_all()
        if not isinstance(frame, (InputAudioRawFrame, InputTransportMessageFrame, InterruptionFrame)):
            await self.push_frame(frame, direction)

    def count(self, kind):
        return self.kinds.count(kind)

    async def wait_for(self, kind, count=1):
        async with self.changed:
            await self.changed.wait_for(lambda: self.count(kind) >= count)


async def talk(url, mode, recording, heard):
    # A header before each frame of audio is the transport's default.
    params = WebsocketClientParams(audio_in_enabled=True, audio_out_enabled=True, audio_out_sample_rate=RATE)
    transport = WebsocketClientTransport(url, params)
    tap = Tap()
    worker = PipelineWorker(
        Pipeline([transport.input(), tap, transport.output()]),
        params=PipelineParams(audio_in_sample_rate=24000, audio_out_sample_rate=RATE),
        enable_rtvi=False,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    with wave.open(recording) as file:
        question = file.readframes(file.getnframes())

    async def send(kind, id, data):
        message = rtvi.Message(type=kind, id=id, data=data).model_dump()
        await worker.queue_frame(OutputTransportMessageUrgentFrame(message=message))

    async def run_microphone(recordings):
        began, sent, audio = time.monotonic(), 0, b""
        chunk_bytes = round(CHUNK_S * RATE) * 2
        while True:
            if not audio and not recordings.empty():
                audio = recordings.get_nowait()
            chunk, audio = audio[:chunk_bytes], audio[chunk_bytes:]
            await worker.queue_frame(
                OutputAudioRawFrame(audio=chunk.ljust(chunk_bytes, b"\0"), sample_rate=RATE, num_channels=1)
            )
            sent += 1
            await asyncio.sleep(max(0.0, began + sent * CHUNK_S - time.monotonic()))

    await send("client-ready", "ready-1", {"version": rtvi.PROTOCOL_VERSION, "about": {"library": "pipecat-ai"}})
    await tap.wait_for("bot-ready")
    recordings = asyncio.Queue()
    microphone = asyncio.create_task(run_microphone(recordings))
    await recordings.put(question)
    if mode == "interrupt":
        await tap.wait_for("audio")
        await asyncio.sleep(1)
        await recordings.put(question)
        await tap.wait_for("interruption")
    await tap.wait_for("bot-stopped-speaking")
    with wave.open(heard, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24000)
        file.writeframes(b"".join(tap.audio))
    if mode == "ask":
        microphone.cancel()
        stops = tap.count("bot-llm-stopped")
        await tap.wait_for("bot-llm-stopped", max(stops, 1))
        stops = tap.count("bot-llm-stopped")
        await send("send-text", "text-1", {"content": "What is your name?", "options": {"run_immediately": True}})
        await tap.wait_for("bot-llm-stopped", stops + 1)
        await send("client-message", "custom-1", {"t": "custom", "d": None})
        await tap.wait_for("error-response")
    microphone.cancel()
    await send("disconnect-bot", "end", {})
    await asyncio.sleep(0.2)
    await worker.cancel()
    await running
    return {"kinds": tap.kinds, "messages": tap.messages, "rates": sorted(tap.rates), "problems": problems}


print(json.dumps(asyncio.run(asyncio.wait_for(talk(*sys.argv[1:]), PATIENCE_S))))
