"""Lets the model call a function through pipecat's OpenAI service: python3 pipecat_tools.py CODE

The code is a keyword argument of the service. Prints what the function was called with, the answer and the length of its audio as
JSON.
"""

import asyncio
import json
import sys

from loguru import logger

logger.remove()

from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import ErrorFrame, LLMRunFrame, TTSAudioRawFrame, TTSTextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
from pipecat.workers.runner import WorkerRunner
from readme_code import keywords

PATIENCE_S = 30
RATE = 24000


class Tap(FrameProcessor):
    """Passes frames on, and notes the answer."""

    def __init__(self, came):
        super().__init__()
        self.came, self.changed = came, asyncio.Event()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        match frame:
            case TTSAudioRawFrame():
                self.came["audio_s"] += len(frame.audio) / (2 * RATE)
            case TTSTextFrame():
                self.came["answer"] += frame.text
            case ErrorFrame():
                self.came["errors"].append(frame.error)
        self.changed.set()
        await self.push_frame(frame, direction)


async def run(code):
    came = {"called": [], "answer": "", "audio_s": 0, "errors": []}

    async def get_weather(params):
        came["called"].append(dict(params.arguments))
        await params.result_callback(f"sunny in {params.arguments['city']}")

    service = OpenAIRealtimeLLMService(
        api_key="a key",
        **keywords(code),
        settings=OpenAIRealtimeLLMService.Settings(
            session_properties=events.SessionProperties(instructions="Answer briefly.")
        ),
    )
    service.register_function("get_weather", get_weather)
    weather = FunctionSchema(
        name="get_weather",
        description="Says the weather in a city.",
        properties={"city": {"type": "string"}},
        required=["city"],
    )
    question = {"role": "user", "content": "What is the weather in Rome?"}
    context = LLMContext([question], tools=ToolsSchema(standard_tools=[weather]))
    external = LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
    pair = LLMContextAggregatorPair(context, user_params=external)
    tap = Tap(came)
    params = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE)
    worker = PipelineWorker(Pipeline([pair.user(), service, tap, pair.assistant()]), params=params)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await worker.queue_frame(LLMRunFrame())
    while not (came["errors"] or (came["audio_s"] > 1 and "Rome" in came["answer"])):
        await tap.changed.wait()
        tap.changed.clear()
    await worker.end()
    await running
    return came


print(json.dumps(asyncio.run(asyncio.wait_for(run(sys.argv[1]), PATIENCE_S))))
