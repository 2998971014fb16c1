"""Pipecat's services, unmodified: pipecat_services.py SERVICE CELL BASE_URL RECORDING.wav HEARD.wav TEXT

The services stand in `SERVICES`; all options but address and key have their defaults. This script takes the part of a local voice
activity detector. Prints one JSON object. Cells: transcription (two turns), error and close of speech to text; speech (two texts) of
text to speech.
"""

import asyncio
import importlib
import json
import os
import sys

import sound

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
from loguru import logger

logger.remove()

from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.workers.runner import WorkerRunner

IN_HZ, OUT_HZ = 16000, 24000
PIECE_S = 0.02
PATIENCE_S = 20
name, cell, base_url, recording, heard, text = sys.argv[1:7]
ws_url = base_url.replace("http", "ws", 1)
host = base_url.split("//")[1]


def api(path, settings=None, **address):
    """A service's class with address and key, and with a voice where one is needed; a cell may add settings."""
    module, _, service = path.rpartition(".")

    def build(**more):
        service_class = getattr(importlib.import_module(f"pipecat.services.{module}"), service)
        changed = {**(settings or {}), **more}
        options = {"settings": service_class.Settings(**changed)} if changed else {}
        return service_class(api_key="any", **address, **options)

    return build


def gemini(**settings):
    from google.genai.types import HttpOptions

    return api("google.gemini_live.stt.GeminiSTTService", http_options=HttpOptions(base_url=base_url))(**settings)


VOICE = {"voice": "any"}
SERVICES = {
    "assemblyai": api("assemblyai.stt.AssemblyAISTTService", api_endpoint_base_url=f"{ws_url}/v3/ws"),
    "cartesia": api("cartesia.stt.CartesiaSTTService", base_url=ws_url),
    "cartesia_tts": api("cartesia.tts.CartesiaTTSService", VOICE, url=f"{ws_url}/tts/websocket"),
    "deepgram": api("deepgram.stt.DeepgramSTTService", base_url=base_url),
    "deepgram_flux": api("deepgram.flux.stt.DeepgramFluxSTTService", url=f"{ws_url}/v2/listen"),
    "deepgram_flux_tts": api("deepgram.flux.tts.DeepgramFluxTTSService", url=f"{ws_url}/v2/speak"),
    "deepgram_tts": api("deepgram.tts.DeepgramTTSService", base_url=ws_url),
    "elevenlabs": api("elevenlabs.stt.ElevenLabsRealtimeSTTService", base_url=host),
    "elevenlabs_tts": api("elevenlabs.tts.ElevenLabsTTSService", VOICE, url=ws_url),
    "gemini": gemini,
    "gladia": api("gladia.stt.GladiaSTTService", url=f"{base_url}/v2/live"),
    "soniox": api("soniox.stt.SonioxSTTService", url=f"{ws_url}/transcribe-websocket"),
    "soniox_tts": api("soniox.tts.SonioxTTSService", url=f"{ws_url}/tts-websocket"),
    "speechmatics": api("speechmatics.stt.SpeechmaticsSTTService", base_url=f"{ws_url}/v2/agent"),
}

# Settings that the vendor does not have.
MISTAKES = {
    "deepgram": {"endpointing": -5},
    "deepgram_flux": {"eot_threshold": 2.0},
    "gladia": {"endpointing": 99.0},
}

# These send interim transcripts only on demand.
WITHOUT_INTERIM = ["gemini", "gladia"]


class Tap(FrameProcessor):
    """Passes frames on, and keeps what the user of a service sees."""

    def __init__(self):
        super().__init__()
        self.finals, self.errors, self.audio = [], [], b""
        self.interim = self.ended = self.rate_hz = 0

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        match frame:
            case InterimTranscriptionFrame():
                self.interim += 1
            case TranscriptionFrame() if frame.text:
                self.finals.append(frame.text.strip())
            case ErrorFrame():
                self.errors.append(frame.error)
            case TTSAudioRawFrame():
                self.audio += frame.audio
                self.rate_hz = frame.sample_rate
            case TTSStoppedFrame():
                self.ended += 1
        await self.push_frame(frame, direction)


class Pipe:
    """A service in a pipeline of its own."""

    def __init__(self, service):
        # Errors go up, everything else goes down.
        self.up, self.down = Tap(), Tap()
        params = PipelineParams(audio_in_sample_rate=IN_HZ, audio_out_sample_rate=OUT_HZ)
        self.worker = PipelineWorker(Pipeline([self.up, service, self.down]), params=params)

    async def start(self):
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)
        self.running = asyncio.create_task(runner.run())

    @property
    def errors(self):
        return self.up.errors + self.down.errors

    async def send(self, pieces, enough=lambda: False):
        """Audio as fast as speech, until there is enough."""
        for piece in pieces:
            if enough():
                return
            await self.worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=IN_HZ, num_channels=1))
            await asyncio.sleep(PIECE_S)

    async def be_silent(self, most_s, enough=lambda: False):
        piece = bytes(2 * int(IN_HZ * PIECE_S))
        await self.send([piece] * int(most_s / PIECE_S), enough)

    async def turn(self):
        """The words of a turn."""
        before = len(self.down.finals)
        await self.worker.queue_frames([VADUserStartedSpeakingFrame(), UserStartedSpeakingFrame()])
        await self.send(sound.pieces(recording, PIECE_S))
        await self.be_silent(0.2)
        await self.worker.queue_frames([VADUserStoppedSpeakingFrame(), UserStoppedSpeakingFrame()])
        await self.be_silent(PATIENCE_S, lambda: len(self.down.finals) > before)
        await self.be_silent(1)
        return " ".join(self.down.finals[before:])

    async def say(self):
        """The audio of a text."""
        start, ended = len(self.down.audio), self.down.ended
        await self.worker.queue_frame(TTSSpeakFrame(text))
        async with asyncio.timeout(PATIENCE_S):
            while self.down.ended == ended and not self.errors:
                await asyncio.sleep(0.05)
        return self.down.audio[start:]

    async def end(self):
        """Whether the pipeline ends soon, and had no error."""
        await self.worker.end()
        _, pending = await asyncio.wait([self.running], timeout=8)
        return not pending and not self.errors


async def listen(pipe):
    if cell == "error":
        await pipe.be_silent(PATIENCE_S, lambda: pipe.errors)
        await pipe.end()
        return {"error": "; ".join(pipe.errors)}
    if cell == "close":
        await pipe.be_silent(1)
        return {"clean": await pipe.end(), "errors": pipe.errors}
    turns = [await pipe.turn(), await pipe.turn()]
    assert await pipe.end(), (turns, pipe.errors)
    assert pipe.down.interim or name in WITHOUT_INTERIM, "no interim transcript"
    return {"turns": turns, "interim": pipe.down.interim}


async def speak(pipe):
    audio, second = await pipe.say(), await pipe.say()
    assert await pipe.end(), pipe.errors
    rate_hz = pipe.down.rate_hz
    lengths = sound.seconds(audio, rate_hz), sound.seconds(second, rate_hz)
    assert abs(lengths[0] - lengths[1]) < 0.2, lengths
    sound.write(heard, audio, rate_hz)
    return {"audio_s": lengths[0]}


async def run():
    pipe = Pipe(SERVICES[name](**(MISTAKES[name] if cell == "error" else {})))
    await pipe.start()
    return await (speak if cell == "speech" else listen)(pipe)


print(json.dumps(asyncio.run(asyncio.wait_for(run(), 80))), flush=True)
# Some services leave threads and connections behind.
os._exit(0)
