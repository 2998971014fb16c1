"""Talks through pipecat's OpenAI services: python3 pipecat_client.py SERVICE CODE RECORDING.wav RECORDING.wav RECORDING.wav

SERVICES `llm` and `llm-local` talk with the model; the model greets first. With `converse`, it speaks unasked. SERVICES `stt` and
`stt-server` only transcribe. With `llm-local` and `stt`, the driver takes the part of a local voice activity detector. The code
is a keyword argument of the service. Prints the talk as JSON.
"""

import asyncio
import sys

from loguru import logger

logger.remove()

from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    InputImageRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMRunFrame,
    ProposedUserStartedSpeakingFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
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
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
from pipecat.workers.runner import WorkerRunner
from readme_code import keywords
from realtime_talk import RATE, Talk, main


PICTURE_SIDE = 16


class Tap(FrameProcessor):
    """Passes frames on, and shows them to the talk."""

    def __init__(self, talk):
        super().__init__()
        self.talk = talk

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        self.talk.handle(frame)
        await self.push_frame(frame, direction)


class PipecatTalk(Talk):
    def __init__(self):
        super().__init__()
        self.interrupted = False

    def build(self, processors):
        params = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE)
        self.worker = PipelineWorker(Pipeline(processors), params=params)

    async def send_audio(self, audio):
        await self.worker.queue_frame(InputAudioRawFrame(audio=audio, sample_rate=RATE, num_channels=1))

    def handle(self, frame):
        if not isinstance(frame, InputAudioRawFrame):
            self.note_event(type(frame).__name__)
        match frame:
            # There is one at the request of a response, and one when it begins.
            case LLMFullResponseStartFrame() if not self.answers or self.answers[-1]["status"]:
                self.begin_answer()
                self.interrupted = False
            case TTSAudioRawFrame():
                self.note_audio(frame.audio)
            case TTSTextFrame():
                self.note_text(frame.text)
            # With the server's detector, the interruption itself may come after the end of the answer.
            case ProposedUserStartedSpeakingFrame() | InterruptionFrame():
                self.interrupted = True
            case LLMFullResponseEndFrame() if self.answers and self.answers[-1]["status"] is None:
                self.end_answer("cancelled" if self.interrupted else "completed")
            case TranscriptionFrame():
                self.note_user(frame.text)
            case ErrorFrame():
                self.note_error(frame.error)


class LlmTalk(PipecatTalk):
    def __init__(self, options, turn_detection):
        super().__init__()
        properties = events.SessionProperties(
            instructions="Answer briefly.",
            audio=events.AudioConfiguration(
                input=events.AudioInput(
                    transcription=events.InputAudioTranscription(), turn_detection=turn_detection
                )
            ),
        )
        service = OpenAIRealtimeLLMService(
            api_key="a key",
            **options,
            settings=OpenAIRealtimeLLMService.Settings(session_properties=properties),
        )
        self.context = LLMContext()
        # The service's turn detection decides; pipecat's own would need a neural network.
        external = LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
        pair = LLMContextAggregatorPair(self.context, user_params=external)
        self.build([pair.user(), Tap(self), service, Tap(self), pair.assistant()])

    async def talk(self, questions):
        await self.worker.queue_frame(LLMRunFrame())
        await self.until(lambda: self.answers and self.answers[0]["status"], "greeting")
        greeting = self.answers.pop()
        picture = bytes(PICTURE_SIDE * PICTURE_SIDE * 3)
        await self.worker.queue_frame(InputImageRawFrame(image=picture, size=(PICTURE_SIDE, PICTURE_SIDE), format="RGB"))
        await self.hold(questions)
        history = [(message["role"], message["content"]) for message in self.context.messages]
        return {"greeting": greeting, "history": history}


class Conversation(LlmTalk):
    async def talk(self, questions):
        await self.converse(questions)
        return {}


class LocalLlmTalk(LlmTalk):
    async def ask(self, question):
        await self.worker.queue_frames([UserStartedSpeakingFrame(), InterruptionFrame()])
        await self.recordings.put(question)
        await self.spoken()
        await self.worker.queue_frame(UserStoppedSpeakingFrame())


class SttTalk(PipecatTalk):
    def __init__(self, options, turn_detection):
        super().__init__()
        service = OpenAIRealtimeSTTService(
            api_key="a key", turn_detection=turn_detection, **options
        )
        self.build([service, Tap(self)])

    async def talk(self, questions):
        microphone = asyncio.create_task(self.run_microphone())
        for number, question in enumerate(questions):
            await self.worker.queue_frame(VADUserStartedSpeakingFrame())
            await self.recordings.put(question)
            await self.spoken()
            await self.worker.queue_frame(VADUserStoppedSpeakingFrame())
            await self.until(lambda: len(self.users) > number, f"transcript {number}")
        microphone.cancel()
        return {}


async def run(code, questions):
    options = keywords(code)
    services = {
        "llm": lambda: LlmTalk(options, events.TurnDetection()),
        "llm-local": lambda: LocalLlmTalk(options, turn_detection=False),
        "converse": lambda: Conversation(options, events.TurnDetection()),
        "stt": lambda: SttTalk(options, turn_detection=False),
        "stt-server": lambda: SttTalk(options, turn_detection={"type": "server_vad"}),
    }
    talk = services[service]()
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(talk.worker)
    running = asyncio.create_task(runner.run())
    more = await talk.talk(questions)
    await talk.worker.end()
    await running
    return {**talk.report(), **more}


service = sys.argv.pop(1)
main(run)
