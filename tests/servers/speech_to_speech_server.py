"""Hugging Face's speech-to-speech without its models: the package's unchanged OpenAI Realtime service, router and queues, with a
thread in place of the language model and the voice.

    speech_to_speech_server.py [--port PORT] [--sessions N]

Prints one JSON line with the port. `POST /script` and `GET /record` are those of vllm_omni_turn_server.py. The voice detector and
the transcriber of the pipeline are absent, so that only written questions, tools and responses outside the conversation work.
"""

import argparse
import asyncio
import dataclasses
import logging
import queue
import threading
import time

from package_imports import stand_in

stand_in("aiortc", "av", "httpx", "nltk", "soxr", "torch", "torchaudio", "transformers", "huggingface_hub", "rich")

import numpy as np  # noqa: E402
from openai.types.responses.response_function_tool_call import ResponseFunctionToolCall  # noqa: E402
from scripted_app import add_script_pages, run_app  # noqa: E402
from speech_to_speech.api.openai_realtime.pipeline_unit import PipelineUnit  # noqa: E402
from speech_to_speech.api.openai_realtime.service import RealtimeService  # noqa: E402
from speech_to_speech.api.openai_realtime.websocket_router import create_app  # noqa: E402
from speech_to_speech.pipeline.cancel_scope import CancelScope  # noqa: E402
from speech_to_speech.pipeline.control import SESSION_END  # noqa: E402
from speech_to_speech.pipeline.events import AssistantOutputEvent, AssistantResponseDoneEvent  # noqa: E402
from speech_to_speech.pipeline.messages import AUDIO_RESPONSE_DONE, AudioOutput, GenerateResponseRequest  # noqa: E402

RATE = 16_000


@dataclasses.dataclass
class Script:
    answers: list = dataclasses.field(default_factory=list)
    text: str = "Part 1. Part 2. Part 3."
    call: dict | None = None
    audio_ms: int = 3000
    pace_ms: float = 5


class Model(threading.Thread):
    def __init__(self, script, unit):
        super().__init__(daemon=True)
        self.script, self.unit, self.asked = script, unit, []

    def run(self):
        while True:
            item = self.unit.text_prompt_queue.get()
            if isinstance(item, GenerateResponseRequest):
                self.answer(item)

    def answer(self, request):
        unit, key, generation = self.unit, request.response_key, self.unit.cancel_scope.generation
        items = [item.model_dump(exclude_none=True) for item in request.runtime_config.chat.buffer]
        response = request.response.model_dump(exclude_none=True) if request.response else None
        self.asked.append({"items": items, "response": response})
        script = self.script
        answer = dataclasses.replace(script, answers=[], **script.answers.pop(0)) if script.answers else script
        tools = []
        if answer.call is not None:
            tools = [ResponseFunctionToolCall(type="function_call", call_id=f"call_{len(self.asked)}", **answer.call)]
        tags = {"cancel_generation": generation, "response_key": key}
        unit.output_queue.put(AssistantOutputEvent(text=answer.text, tools=tools, **tags))
        for at in range(answer.audio_ms // 20 if answer.text else 0):
            if unit.cancel_scope.is_stale(generation):
                break
            unit.output_queue.put(AudioOutput(audio=np.full(RATE // 50, 1 + at, dtype=np.int16), **tags))
            time.sleep(answer.pace_ms / 1000)
        unit.output_queue.put(AssistantResponseDoneEvent(**tags))
        unit.output_queue.put(AudioOutput(audio=AUDIO_RESPONSE_DONE, **tags))


class Input(threading.Thread):
    """The rest of the pipeline passes only the end of a session on."""

    def __init__(self, unit):
        super().__init__(daemon=True)
        self.unit = unit

    def run(self):
        while True:
            item = self.unit.input_queue.get()
            if getattr(item, "kind", None) == SESSION_END.kind:
                self.unit.output_queue.put(item)


def make_unit(index):
    prompts, should_listen = queue.Queue(), threading.Event()
    return PipelineUnit(
        index=index,
        service=RealtimeService(prompts, should_listen),
        cancel_scope=CancelScope(),
        should_listen=should_listen,
        response_playing=threading.Event(),
        input_queue=queue.Queue(),
        output_queue=queue.Queue(),
        text_output_queue=queue.Queue(),
        text_prompt_queue=prompts,
        handlers=[],
    )


def main():
    logging.getLogger("speech_to_speech").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--sessions", type=int, default=4)
    args = parser.parse_args()
    script, units = Script(), [make_unit(index) for index in range(args.sessions)]
    models = [Model(script, unit) for unit in units]
    for thread in models + [Input(unit) for unit in units]:
        thread.start()
    app = create_app(units, threading.Event())
    add_script_pages(app, script, lambda: [asked for model in models for asked in model.asked])
    asyncio.run(run_app(app, args.port))


if __name__ == "__main__":
    main()
