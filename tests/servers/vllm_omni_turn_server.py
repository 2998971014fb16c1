"""vLLM-Omni's turn handler of `/v1/realtime` without a model: the wheel's unchanged handler, connection, session and turn
detector, over an engine that follows a script.

    vllm_omni_turn_server.py [--model NAME] [--no-tools] [--port PORT]

Prints one JSON line with the port. The scripted model answers each question with three sentences and speech of the
simulator's ramp. What differs is asked for by `POST /script`; `GET /record` tells what the model was asked.
"""

import argparse
import asyncio
import base64
import dataclasses
import io
import json
import logging
import types
import wave

from package_imports import stand_in, without_init

stand_in(
    *("httpx", "prettytable", "torch", "torchaudio", "transformers", "vllm"),
    *("vllm_omni.entrypoints.async_omni", "vllm_omni.outputs"),
)
without_init(
    *("vllm_omni", "vllm_omni.config", "vllm_omni.engine", "vllm_omni.engine.duplex", "vllm_omni.entrypoints"),
    *("vllm_omni.entrypoints.duplex", "vllm_omni.entrypoints.openai", "vllm_omni.metrics", "vllm_omni.utils"),
)

import numpy as np  # noqa: E402
import vllm.entrypoints.openai.chat_completion.protocol as chat_protocol  # noqa: E402
import vllm.exceptions  # noqa: E402
import vllm.sampling_params  # noqa: E402
import vllm.tool_parsers  # noqa: E402
from fastapi import WebSocket  # noqa: E402
from scripted_app import run_app, scripted_app  # noqa: E402

OUTPUT_RATE = 24_000
LOUD_RMS = 0.01
RAMP_SAMPLES = 4095
CALL_START, CALL_END = "<tool_call>", "</tool_call>"


class ChatRequest:
    """A chat of the server's own, of which only the template is read."""

    chat_template = None

    def __init__(self, **fields):
        self.__dict__.update(fields)


class ValidationError(ValueError):
    parameter = None


class Sampling:
    """Parameters of one stage."""

    max_tokens = None

    def clone(self):
        return Sampling()


class CallParser:
    """Parser of calls written as Hermes models write them. Arguments are passed on as they were written."""

    engine_based_streaming = False

    def __init__(self, _tokenizer, tools):
        self.sent = {}

    def get_structural_tag(self, _request, reasoning):
        return None

    def extract_tool_calls_streaming(self, previous, current, *_, request):
        written = [part.partition(CALL_END) for part in current.split(CALL_START)[1:]]
        calls = [self.new_part(index, call, bool(end)) for index, (call, end, _) in enumerate(written)]
        content = words_outside(current)[len(words_outside(previous)) :]
        return types.SimpleNamespace(content=content, tool_calls=[call for call in calls if call])

    def new_part(self, index, written, is_complete):
        head, has_arguments, arguments = written.partition(', "arguments": ')
        if not has_arguments:
            return None
        # The brace behind the arguments ends the call, and the mark may have begun.
        arguments = without_tail(f"{arguments}{CALL_END}" if is_complete else arguments, f"}}{CALL_END}")
        new = arguments[len(self.sent.get(index, "")) :]
        is_first, self.sent[index] = index not in self.sent, arguments
        function = types.SimpleNamespace(name=json.loads(head + "}")["name"] if is_first else None, arguments=new)
        return types.SimpleNamespace(index=index, id=None, function=function)


def without_tail(text, tail):
    """The text without its longest end that begins `tail`."""
    return next(text[: len(text) - size] for size in range(len(tail), -1, -1) if text.endswith(tail[:size]))


def words_outside(text):
    """The text without calls, and without what may become one."""
    return text.partition(CALL_START)[0].partition("<")[0]


chat_protocol.ChatCompletionRequest = ChatRequest
vllm.exceptions.VLLMValidationError = ValidationError
vllm.sampling_params.SamplingParams = Sampling
vllm.tool_parsers.ToolParserManager = types.SimpleNamespace(get_tool_parser=lambda _name: CallParser)

from vllm_omni.entrypoints.duplex.openai import OpenAIRealtimeHandler  # noqa: E402
# The handler imports it at the first connection.
from vllm_omni.entrypoints.openai.realtime import connection as _  # noqa: E402, F401


@dataclasses.dataclass
class Script:
    """What a test asks for. Each holds until it is asked for anew."""

    #: Answers that come before those of `text`, first the next. An answer is text, or an object with fields of this class.
    answers: list = dataclasses.field(default_factory=list)
    text: str = "Part 1. Part 2. Part 3."
    #: A call that the model makes after its text: {"name": NAME, "arguments": TEXT}.
    call: dict | None = None
    #: Speech of an answer, in deltas of this length.
    audio_ms: int = 3000
    delta_ms: int = 200
    #: Time between two deltas.
    pace_ms: float = 5
    #: The model stops before its end.
    reaches_limit: bool = False
    #: The engine fails after this number of deltas of audio.
    fails_after: int | None = None
    #: The connection breaks after this number of deltas of audio.
    breaks_after: int | None = None
    #: The answer does not end.
    never_ends: bool = False
    #: Tokens, one for each word of a prompt, that the model takes.
    context_tokens: int = 4096


@dataclasses.dataclass
class Asked:
    """One question to the model."""

    messages: list
    tools: list | None
    modalities: list
    max_tokens: int | None
    #: Audio of the last message.
    pcm: str
    is_aborted: bool = False


class Tokens:
    """A tokenizer that has one token for each word."""

    def __init__(self):
        self.words = []

    def encode(self, text):
        words = text.split()
        self.words += [f"{word} " for word in words]
        return list(range(len(self.words) - len(words), len(self.words)))

    def decode(self, ids, skip_special_tokens):
        return "".join(self.words[id] for id in ids)


def ramp(turn, start, end):
    """The simulator's speech. Half a level away from zero, because the handler rounds towards zero."""
    index = np.arange(start, end)
    level = 1 + turn % 8 * RAMP_SAMPLES + index % RAMP_SAMPLES
    sign = np.where(index // RAMP_SAMPLES % 2, -1, 1)
    return (sign * (level + 0.5) / 32767).astype(np.float32)


def without_audio(message):
    """A message for the record, and the samples of its audio."""
    if not isinstance(message["content"], list):
        return message, b""
    parts, pcm = [], b""
    for part in message["content"]:
        if part["type"] == "input_audio":
            with wave.open(io.BytesIO(base64.b64decode(part["input_audio"]["data"]))) as file:
                heard = file.readframes(file.getnframes())
            pcm += heard
            part = {"type": "input_audio", "samples": len(heard) // 2, "rate": file.getframerate()}
        parts.append(part)
    return {**message, "content": parts}, pcm


class Chat:
    """The part of the server's chat that the handler uses."""

    chat_template = chat_template_content_format = None

    def __init__(self):
        self.tokens = Tokens()
        self.renderer = types.SimpleNamespace(get_tokenizer=lambda: self.tokens)

    def _effective_chat_template_kwargs(self, _request):
        return {}

    def _fix_minicpmo45_audio_stream_output_kinds(self, params, _modalities):
        return params

    async def _preprocess_chat(self, _request, messages, *, tool_dicts, **_):
        count = len(json.dumps([without_audio(message)[0] for message in messages]).split())
        return None, [{"prompt_token_ids": [0] * count, "messages": messages, "tools": tool_dicts}]


class Engine:
    """The engine with its stages: thinker, talker, vocoder."""

    default_sampling_params_list = [Sampling()]

    def __init__(self, script, tokens):
        self.script, self.tokens = script, tokens
        self.asked, self.requests, self.sockets = [], {}, []

    @property
    def model_config(self):
        return types.SimpleNamespace(max_model_len=self.script.context_tokens)

    async def abort(self, request_id):
        self.requests[request_id].is_aborted = True

    async def generate(self, prompt, request_id, sampling_params_list, output_modalities):
        messages = [without_audio(message) for message in prompt["messages"]]
        asked = Asked(
            messages=[message for message, _ in messages],
            tools=prompt["tools"],
            modalities=output_modalities,
            max_tokens=sampling_params_list[0].max_tokens,
            pcm=base64.b64encode(messages[-1][1] if messages else b"").decode(),
        )
        turn = len(self.asked)
        self.asked.append(asked)
        self.requests[request_id] = asked
        answer = self.next_answer()
        speaks = "audio" in output_modalities
        for piece in self.pieces(answer, is_whole=speaks):
            yield self.words(piece, prompt, answer)
            await asyncio.sleep(answer.pace_ms / 1000)
        if speaks:
            async for audio in self.speech(turn, answer):
                yield audio
        while answer.never_ends:
            await asyncio.sleep(0.1)

    def next_answer(self):
        if not self.script.answers:
            return self.script
        answer = self.script.answers.pop(0)
        fields = {"text": answer} if isinstance(answer, str) else answer
        return dataclasses.replace(self.script, answers=[], **fields)

    def pieces(self, answer, is_whole):
        """The thinker's text. As for MiniCPM-o, it comes whole where speech is made of it."""
        words = [answer.text] if is_whole else [f"{word} " for word in answer.text.split()]
        yield from (word for word in words if word)
        if answer.call is not None:
            call = f'{CALL_START}{{"name": {json.dumps(answer.call["name"])}, "arguments": {answer.call["arguments"]}}}{CALL_END}'
            yield from (call[at : at + 7] for at in range(0, len(call), 7))

    def words(self, text, prompt, answer):
        finish = "length" if answer.reaches_limit else None
        ids = self.tokens.encode(text)
        output = types.SimpleNamespace(text=text, token_ids=ids, finish_reason=finish)
        return types.SimpleNamespace(
            final_output_type="text", outputs=[output], prompt_token_ids=prompt["prompt_token_ids"]
        )

    async def speech(self, turn, answer):
        samples, step = (OUTPUT_RATE * ms // 1000 for ms in (answer.audio_ms, answer.delta_ms))
        for number, at in enumerate(range(0, samples, step)):
            if number == answer.fails_after:
                raise RuntimeError("failed by the script")
            if number == answer.breaks_after:
                await self.break_connections()
            output = {"audio": ramp(turn, at, min(at + step, samples)), "sr": OUTPUT_RATE}
            outputs = [types.SimpleNamespace(multimodal_output=output)]
            yield types.SimpleNamespace(final_output_type="audio", outputs=outputs, multimodal_output=output)
            await asyncio.sleep(answer.pace_ms / 1000)

    async def break_connections(self):
        for websocket in self.sockets:
            await websocket.close(code=1011)
        await asyncio.sleep(1)


class LoudnessDetector:
    """In place of Silero's network: a frame is speech where it is loud."""

    frame_samples = 512

    def new_state(self):
        return None

    def infer(self, frame, state):
        return float(np.sqrt(np.mean(np.square(frame))) >= LOUD_RMS), state


def build_app(script, args):
    chat = Chat()
    engine = Engine(script, chat.tokens)
    app = scripted_app(script, lambda: [dataclasses.asdict(asked) for asked in engine.asked], args.model)
    app.state.engine_client, app.state.openai_serving_chat = engine, chat
    app.state.openai_serving_models = types.SimpleNamespace(base_model_paths=[types.SimpleNamespace(name=args.model)])
    parser = None if args.no_tools else "hermes"
    app.state.args = types.SimpleNamespace(tool_call_parser=parser, enable_auto_tool_choice=not args.no_tools)
    handler = OpenAIRealtimeHandler()
    handler._vad_backend_provider = types.SimpleNamespace(get=LoudnessDetector)

    @app.websocket("/v1/realtime")
    async def realtime(websocket: WebSocket):
        # As `realtime_websocket` in the wheel's api_server.py does in a deployment that takes turns.
        if websocket.query_params.get("duplex", "").lower() in {"1", "true", "on"}:
            await websocket.accept()
            await websocket.send_json({"type": "error", "code": "unsupported", "error": "VAD realtime is not enabled"})
            return await websocket.close(code=1008)
        engine.sockets.append(websocket)
        try:
            await handler.handle_websocket(websocket)
        finally:
            engine.sockets.remove(websocket)

    @app.websocket("/v1/duplex")
    async def duplex(websocket: WebSocket):
        await websocket.accept()
        await websocket.send_json({"type": "error", "error": "Duplex API is not available", "code": "unsupported"})
        await websocket.close()

    return app


def main():
    # A failure that a test asks for is no fault of this server.
    logging.getLogger("vllm_omni").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="openbmb/MiniCPM-o-4_5")
    parser.add_argument("--no-tools", action="store_true", help="as without --enable-auto-tool-choice")
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    asyncio.run(run_app(build_app(Script(), args), args.port))


if __name__ == "__main__":
    main()
