"""Pipecat's services, unmodified: pipecat_services.py SERVICE CELL BASE_URL RECORDING.wav HEARD.wav TEXT

The services stand in `SERVICES`; all options but address and key have their defaults. This script takes the part of a local voice
activity detector. Prints one JSON object. Cells: transcription (two turns), error and close of speech to text; speech (two texts) and
error of text to speech; conversation (two turns), error and close of models that hear and speak.
"""

import asyncio
import difflib
import importlib
import json
import os
import sys

import aiohttp
import sound

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
from loguru import logger

logger.remove()

from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    LLMFullResponseEndFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
from pipecat.workers.runner import WorkerRunner

IN_HZ, OUT_HZ = 16000, 24000
PIECE_S = 0.02
GREETING = "Greet the user."
PATIENCE_S = 20
name, cell, base_url, recording, heard, text = sys.argv[1:7]
ws_url = base_url.replace("http", "ws", 1)
host = base_url.split("//")[1]


def api(path, settings=None, **address):
    """A service's class with address and key, and with a voice where one is needed; a cell may add options and settings."""
    module, _, service = path.rpartition(".")

    def build(more_settings=None, **options):
        service_class = getattr(importlib.import_module(f"pipecat.services.{module}"), service)
        changed = {**(settings or {}), **(more_settings or {})}
        if changed:
            options["settings"] = service_class.Settings(**changed)
        return service_class(**{"api_key": "any", **address, **options})

    return build


def rest(path, settings=None):
    """A service that has a session of HTTP."""

    def build(*more_settings, **options):
        session = aiohttp.ClientSession()
        return api(path, settings, base_url=base_url, aiohttp_session=session)(*more_settings, **options)

    return build


def google(path):
    def build(*settings, **options):
        from google.genai.types import HttpOptions

        return api(path, http_options=HttpOptions(base_url=base_url))(*settings, **options)

    return build


def speechmatics_vad(more_settings=None):
    """Speechmatics ends the turns."""
    from pipecat.services.speechmatics.stt import TurnDetectionMode

    settings = {"turn_detection_mode": TurnDetectionMode.VAD, **(more_settings or {})}
    return SERVICES["speechmatics"](settings)


def elevenlabs_vad(**options):
    """ElevenLabs ends the turns."""
    from pipecat.services.elevenlabs.stt import CommitStrategy

    return SERVICES["elevenlabs"](commit_strategy=CommitStrategy.VAD, **options)


def openai_realtime(**properties):
    """A model that also transcribes the user."""
    from pipecat.services.openai.realtime import events

    audio_in = events.AudioInput(transcription=events.InputAudioTranscription())
    properties = {"audio": events.AudioConfiguration(input=audio_in), **properties}
    service = api("openai.realtime.llm.OpenAIRealtimeLLMService", base_url=f"{ws_url}/v1/realtime")
    return service({"session_properties": events.SessionProperties(**properties)})


VOICE = {"voice": "any"}
SERVICES = {
    "assemblyai": api("assemblyai.stt.AssemblyAISTTService", api_endpoint_base_url=f"{ws_url}/v3/ws"),
    "cartesia": api("cartesia.stt.CartesiaSTTService", base_url=ws_url),
    "cartesia_http": rest("cartesia.tts.CartesiaHttpTTSService", VOICE),
    "cartesia_turns": api("cartesia.turns.stt.CartesiaTurnsSTTService", url=f"{ws_url}/stt/turns/websocket"),
    "cartesia_tts": api("cartesia.tts.CartesiaTTSService", VOICE, url=f"{ws_url}/tts/websocket"),
    "deepgram": api("deepgram.stt.DeepgramSTTService", base_url=base_url),
    "deepgram_flux": api("deepgram.flux.stt.DeepgramFluxSTTService", url=f"{ws_url}/v2/listen"),
    "deepgram_flux_tts": api("deepgram.flux.tts.DeepgramFluxTTSService", url=f"{ws_url}/v2/speak"),
    "deepgram_http": rest("deepgram.tts.DeepgramHttpTTSService"),
    "deepgram_tts": api("deepgram.tts.DeepgramTTSService", base_url=ws_url),
    "elevenlabs": api("elevenlabs.stt.ElevenLabsRealtimeSTTService", base_url=host),
    "elevenlabs_dialogue": api("elevenlabs.dialogue.tts.ElevenLabsDialogueTTSService", VOICE, url=ws_url),
    "elevenlabs_http": rest("elevenlabs.tts.ElevenLabsHttpTTSService", VOICE),
    "elevenlabs_tts": api("elevenlabs.tts.ElevenLabsTTSService", VOICE, url=ws_url),
    "elevenlabs_vad": elevenlabs_vad,
    "gemini": google("google.gemini_live.stt.GeminiSTTService"),
    "gemini_live": google("google.gemini_live.llm.GeminiLiveLLMService"),
    "gladia": api("gladia.stt.GladiaSTTService", url=f"{base_url}/v2/live"),
    "openai_realtime": openai_realtime,
    "openai_stt": api("openai.stt.OpenAIRealtimeSTTService", base_url=f"{ws_url}/v1/realtime"),
    "soniox": api("soniox.stt.SonioxSTTService", url=f"{ws_url}/transcribe-websocket"),
    "soniox_tts": api("soniox.tts.SonioxTTSService", url=f"{ws_url}/tts-websocket"),
    "speechmatics": api("speechmatics.stt.SpeechmaticsSTTService", base_url=f"{ws_url}/v2/agent"),
    "speechmatics_tts": rest("speechmatics.tts.SpeechmaticsTTSService"),
    "speechmatics_vad": speechmatics_vad,
}

# Models that hear and speak.
MODELS = ["gemini_live", "openai_realtime"]

# Options that the vendor does not have. `more_settings` are those that a service changes while it runs.
MISTAKES = {
    "assemblyai": {"more_settings": {"end_of_turn_confidence_threshold": 2.0}},
    "cartesia": {"encoding": "pcm_s24le"},
    "cartesia_http": {"sample_rate": 7},
    "cartesia_tts": {"sample_rate": 7},
    "cartesia_turns": {"sample_rate": 7},
    "deepgram": {"more_settings": {"endpointing": -5}},
    "deepgram_flux": {"more_settings": {"eot_threshold": 2.0}},
    "deepgram_flux_tts": {"sample_rate": 7},
    "deepgram_http": {"sample_rate": 7},
    "deepgram_tts": {"sample_rate": 7},
    "elevenlabs_dialogue": {"more_settings": {"stability": 9.0}},
    "elevenlabs_tts": {"more_settings": {"stability": 9.0}},
    "elevenlabs_vad": {"more_settings": {"vad_silence_threshold_secs": 99.0}},
    "gemini": {"sample_rate": 7},
    # The service shows no error of the setup: the mistake is the rate of the audio, below.
    "gemini_live": {},
    "gladia": {"more_settings": {"endpointing": 99.0}},
    "openai_realtime": {"max_output_tokens": -1},
    "openai_stt": {"more_settings": {"noise_reduction": "loud"}},
    "soniox": {"num_channels": 20},
    "soniox_tts": {"sample_rate": 7},
    "speechmatics": {"more_settings": {"additional_vocab": [{"word": "x"}]}},
    "speechmatics_vad": {"more_settings": {"additional_vocab": [{"word": "x"}]}},
}

# These send interim transcripts only on demand.
WITHOUT_INTERIM = ["gemini", "gladia"]

# These give the words of the speech as they are spoken.
WITH_WORD_TIMES = ["elevenlabs_http"]


class Tap(FrameProcessor):
    """Passes frames on, and keeps what the user of a service sees."""

    def __init__(self):
        super().__init__()
        self.finals, self.errors, self.words, self.audio = [], [], [], b""
        self.interim = self.ended = self.answered = self.rate_hz = 0

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
            case TTSTextFrame():
                self.words.append(frame.text)
            case TTSStoppedFrame():
                self.ended += 1
            case LLMFullResponseEndFrame():
                self.answered += 1
        await self.push_frame(frame, direction)


class Pipe:
    """A service in a pipeline of its own."""

    def __init__(self, service):
        # Errors and the user's words go up, everything else goes down.
        self.up, self.down = Tap(), Tap()
        stages = [self.up, service, self.down]
        if name in MODELS:
            # The model's turn detection decides; Pipecat's own would need a neural network.
            external = LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
            self.context = LLMContext([{"role": "user", "content": GREETING}])
            pair = LLMContextAggregatorPair(self.context, user_params=external)
            stages = [pair.user(), *stages, pair.assistant()]
        params = PipelineParams(audio_in_sample_rate=IN_HZ, audio_out_sample_rate=OUT_HZ)
        self.worker = PipelineWorker(Pipeline(stages), params=params)

    async def start(self):
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)
        self.running = asyncio.create_task(runner.run())

    @property
    def errors(self):
        return self.up.errors + self.down.errors

    async def send(self, pieces, enough=lambda: False):
        """Audio as fast as speech, until there is enough."""
        rate_hz = 7 if (name, cell) == ("gemini_live", "error") else IN_HZ
        for piece in pieces:
            if enough():
                return
            await self.worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=rate_hz, num_channels=1))
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

    async def say(self, text):
        """The audio of a text."""
        start, ended = len(self.down.audio), self.down.ended
        await self.worker.queue_frame(TTSSpeakFrame(text))
        async with asyncio.timeout(PATIENCE_S):
            while self.down.ended == ended and not self.errors:
                await asyncio.sleep(0.05)
        return self.down.audio[start:]

    async def ask(self, question):
        """The audio of the answer to a question, after the end of which there is silence."""
        start, answered = len(self.down.audio), self.down.answered
        await self.send(question)
        await self.be_silent(PATIENCE_S, lambda: self.down.answered > answered or self.errors)
        await self.be_silent(1)
        return self.down.audio[start:]

    async def end(self):
        """Whether the pipeline ends soon, and had no error."""
        await self.worker.end()
        _, pending = await asyncio.wait([self.running], timeout=8)
        return not pending and not self.errors


async def fail(pipe):
    """Errors that the user of a service is shown, at the latest when it is used."""
    await pipe.worker.queue_frame(LLMRunFrame() if name in MODELS else TTSSpeakFrame(text))
    await pipe.be_silent(PATIENCE_S, lambda: pipe.errors)
    await pipe.end()
    return {"error": "; ".join(pipe.errors)}


async def close(pipe):
    await pipe.be_silent(1)
    return {"clean": await pipe.end(), "errors": pipe.errors}


async def listen(pipe):
    turns = [await pipe.turn(), await pipe.turn()]
    assert await pipe.end(), (turns, pipe.errors)
    assert pipe.down.interim or name in WITHOUT_INTERIM, "no interim transcript"
    return {"turns": turns, "interim": pipe.down.interim}


async def speak(pipe):
    audio, second = await pipe.say(text), await pipe.say(f"{text} {text}")
    assert await pipe.end(), pipe.errors
    rate_hz = pipe.down.rate_hz
    lengths = sound.seconds(audio, rate_hz), sound.seconds(second, rate_hz)
    assert lengths[1] > 1.7 * lengths[0], lengths
    # Words come with their times, if the vendor has them, and otherwise all at once.
    assert " ".join(pipe.down.words).split() == text.split() * 3 or name not in WITH_WORD_TIMES, pipe.down.words
    sound.write(heard, audio, rate_hz)
    return {"audio_s": lengths[0]}


async def converse(pipe):
    """The model greets, and answers two questions."""
    await pipe.worker.queue_frame(LLMRunFrame())
    answers = [await pipe.ask(question()) for question in [list, *[lambda: sound.pieces(recording, PIECE_S)] * 2]]
    assert await pipe.end() and all(answers), pipe.errors
    said = [(message["role"], message["content"]) for message in pipe.context.messages]
    (_, user), (_, words) = said[2:4]
    likeness = difflib.SequenceMatcher(None, words, said[-1][1]).ratio()
    assert len(said) == 6 and GREETING in said[1][1] and likeness > 0.8, said
    sound.write(heard, answers[1], pipe.down.rate_hz)
    return {"text": words, "user": user, "audio_s": sound.seconds(answers[1], pipe.down.rate_hz)}


CELLS = {"close": close, "conversation": converse, "error": fail, "speech": speak, "transcription": listen}


async def run():
    pipe = Pipe(SERVICES[name](**(MISTAKES[name] if cell == "error" else {})))
    await pipe.start()
    return await CELLS[cell](pipe)


print(json.dumps(asyncio.run(asyncio.wait_for(run(), 80))), flush=True)
# Some services leave threads and connections behind.
os._exit(0)
