"""vLLM-Omni's duplex endpoint without a model: the unchanged WebSocket handler, session manager, session runner and MiniCPM-o
plug-in of the wheel, over stages that follow a script.

    vllm_omni_server.py [--unit-ms MS] [--max-sessions N] [--grace-s S] [--pending-input-max BYTES] [--model NAME]

Prints one JSON line with the port. The scripted model makes one step for each unit of audio. It listens, until a unit was
loud and the next is not; then it says three units. What differs is asked for by `POST /script`; `GET /record` tells what the
model heard.
"""

import argparse
import asyncio
import base64
import concurrent.futures
import dataclasses
import io
import logging
import os
import wave

from package_imports import stand_in, without_init

stand_in(
    *("omegaconf", "prettytable", "torch", "torchaudio", "transformers", "vllm"),
    *("vllm_omni.core", "vllm_omni.engine.async_omni_engine", "vllm_omni.engine.orchestrator"),
    *("vllm_omni.entrypoints.async_omni", "vllm_omni.inputs"),
    *("soundfile", "vllm_omni.model_executor.models.minicpmo_4_5.minicpmo_4_5_code2wav"),
)
MINICPM = "vllm_omni.model_executor.models.minicpmo_4_5"
without_init(
    *("vllm_omni", "vllm_omni.config", "vllm_omni.engine", "vllm_omni.entrypoints", "vllm_omni.metrics"),
    *("vllm_omni.model_executor.models", MINICPM, f"{MINICPM}.duplex"),
)

import numpy as np  # noqa: E402
from fastapi import WebSocket  # noqa: E402
from scripted_app import run_app, scripted_app  # noqa: E402
from vllm_omni.config.stage_config import DuplexSessionRuntimeConfig  # noqa: E402
from vllm_omni.engine.duplex import contracts, messages  # noqa: E402
from vllm_omni.engine.duplex.session.manager import DuplexSessionManager  # noqa: E402
from vllm_omni.entrypoints.duplex import OmniDuplexSessionHandler  # noqa: E402
from vllm_omni.entrypoints.duplex_omni import DuplexOmni  # noqa: E402
from vllm_omni.model_executor.models.minicpmo_4_5.duplex import plugin as minicpm  # noqa: E402
from vllm_omni.outputs import OmniRequestOutput  # noqa: E402

OUTPUT_RATE = 24_000
LOUD_RMS = 0.01
LISTEN_TOKEN = 7
FINAL_STAGE = 2


@dataclasses.dataclass
class Script:
    """What a test asks for. Each holds until it is asked for anew."""

    #: Units of an answer.
    turn_units: int = 3
    #: Deltas of a unit in which the model speaks.
    deltas_per_unit: int = 1
    #: Time that a step takes.
    unit_ms: float = 20
    #: Code with which the engine refuses to open a session.
    refuse_open: str | None = None
    #: No step begins, so that input piles up.
    is_stalled: bool = False
    #: The model does not end its answer.
    never_yields: bool = False
    #: Appends that are refused as if too much waited.
    refuse_appends: int = 0


@dataclasses.dataclass
class Heard:
    """What the model heard in one session."""

    pcm: bytearray = dataclasses.field(default_factory=bytearray)
    units: int = 0
    #: Units that the server added by itself.
    silence_units: int = 0
    frames: list = dataclasses.field(default_factory=list)


def encode_audio(audio, _rate, _format, _speed):
    samples = np.asarray(audio, dtype=np.float32)
    return base64.b64encode((samples * 32767).astype("<i2").tobytes()).decode() if samples.size else None


async def resolve_ref_audio(uri, **_):
    """Reads a WAV file from a data URL, as the server's media connector does."""
    if not uri.startswith("data:"):
        raise ValueError("only data URLs")
    with wave.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return samples.astype(np.float32) / 32768, file.getframerate()


async def default_ref_audio(_model_config):
    """The voice that a checkpoint has since 0.32."""
    return np.full(16_000, 0.1, dtype=np.float32), 16_000


minicpm.resolve_ref_audio = resolve_ref_audio
minicpm.resolve_default_ref_audio = default_ref_audio


class Stages(contracts.DuplexStagePort):
    """The three stages of the pipeline: thinker, talker, vocoder."""

    stage_count = FINAL_STAGE + 1

    def __init__(self, script):
        self.script, self.manager = script, None
        self.heard, self.turns = {}, {}

    def sampling_defaults(self):
        return (None,) * self.stage_count

    def ensure_request(self, context):
        self.heard.setdefault(context.session_id, Heard())

    async def submit(self, submission):
        while self.script.is_stalled:
            await asyncio.sleep(0.01)
        context, info = submission.context, submission.prompt["model_intermediate_buffer"]["duplex"]
        task = asyncio.create_task(self.step(context, info["payload"]))
        task.add_done_callback(lambda done: done.cancelled() or done.result())
        return contracts.DuplexStageSubmissionResult(context.request_id, context.stage_id, 0)

    async def cleanup(self, request_ids, *, abort=False):
        for request_id in request_ids:
            self.turns.pop(request_id, None)

    async def abort_requests(self, request_ids):
        await self.cleanup(request_ids, abort=True)

    async def step(self, context, payload):
        heard = self.heard[context.session_id]
        samples = np.frombuffer(base64.b64decode(payload["audio"]), dtype="<f4")
        heard.units += 1
        heard.silence_units += "is_speech" not in payload
        heard.pcm += (samples * 32768).round().clip(-32768, 32767).astype("<i2").tobytes()
        heard.frames += payload.get("video_frames", [])
        await asyncio.sleep(self.script.unit_ms / 1000)
        said = self.answer(context.request_id, np.sqrt(np.mean(samples**2)) >= LOUD_RMS, payload)
        if said is None:
            self.emit(0, context, token_ids=(LISTEN_TOKEN,), meta={"listen_token_id": LISTEN_TOKEN})
        else:
            self.speak(context, *said)

    def answer(self, request_id, is_loud, payload):
        """Number of the unit that the model says now, and whether it is the last."""
        turn = self.turns.setdefault(request_id, {"heard": False, "said": None})
        turn["heard"] |= is_loud
        if turn["said"] is None and turn["heard"] and not is_loud:
            turn.update(heard=False, said=0)
        if turn["said"] is None or payload.get("force_listen") is True:
            return None
        turn["said"] += 1
        said, is_last = turn["said"], turn["said"] >= self.script.turn_units and not self.script.never_yields
        if is_last:
            turn["said"] = None
        return said, is_last

    def speak(self, context, number, is_last):
        parts = self.script.deltas_per_unit
        for part in range(parts):
            ends = part == parts - 1
            samples = np.full(OUTPUT_RATE // parts, 0.05 * number, dtype=np.float32)
            text = f"Part {number}. " if part == 0 else ""
            meta = {"llm_output_text": text, "turn_end": is_last and ends, "tts_is_last_chunk": ends}
            self.emit(FINAL_STAGE, context, meta=meta, audio=[samples])

    def emit(self, stage, context, *, token_ids=(), meta=None, audio=None):
        runner = self.manager.runner_for_request_id(context.request_id)
        if runner is None:
            return
        meta = {**(meta or {}), "duplex_turn_id": context.fence.turn_id, "duplex_epoch": context.fence.epoch}
        output = OmniRequestOutput(request_id=context.request_id, stage_id=stage, finished=False)
        output._multimodal_output = {"meta": meta, "sr": OUTPUT_RATE, **({"audio": audio} if audio else {})}
        out = contracts.DuplexOutputContext(
            identity=contracts.DuplexRequestIdentity(context.session_id, context.fence),
            final_stage_id=FINAL_STAGE,
            segment_finished=stage == 0,
            segment_token_ids=token_ids,
            segment_output_metadata=meta,
        )
        runner.on_stage_output(stage, output, None, request_id=context.request_id, context=out)


class Engine:
    """The engine's side of `DuplexOmni`, on the event loop of the server instead of a thread of its own."""

    def __init__(self, script, limits, plugin, stages, model_config=None):
        self.script, self.duplex_session_config = script, limits
        self.plugin, self.stages = plugin, stages
        self.waiting, self.route = {}, None
        self.manager = DuplexSessionManager(
            plugin=self.plugin,
            stage_port=self.stages,
            output_sink=self,
            result_sink=self,
            runtime_config=limits,
            model_config=model_config,
            executor=concurrent.futures.ThreadPoolExecutor(4),
        )
        self.stages.manager = self.manager

    @property
    def duplex_capabilities(self):
        return self.plugin.capabilities(max_sessions=self.duplex_session_config.max_sessions)

    def put_nowait(self, message):
        self.route(message)

    async def put(self, result):
        self.waiting.pop(result.control_id).set_result(result)

    async def control(self, kind, session_id, timeout, control_id=None, **fields):
        message = kind(control_id=control_id or os.urandom(8).hex(), session_id=session_id, **fields)
        answer = self.waiting[message.control_id] = asyncio.get_running_loop().create_future()
        self.manager.dispatch(message)
        result = await asyncio.wait_for(answer, timeout)
        if not result.ok:
            raise messages.DuplexSessionError(
                result.error_message, code=result.error_code, retryable=result.error_retryable, session_id=session_id
            )
        return result

    async def open_session_async(self, session_id, session_config, *, timeout=None, **output):
        if self.script.refuse_open is not None:
            raise messages.DuplexSessionError("refused by the script", code=self.script.refuse_open)
        # Since 0.31 the session's output has a bounded buffer.
        fields = {"session_config": session_config, **output}
        return await self.control(messages.OpenDuplexSessionMessage, session_id, timeout, **fields)

    async def close_session_async(self, session_id, *, reason="client_close", timeout=None):
        return await self.control(messages.CloseDuplexSessionMessage, session_id, timeout, reason=reason)

    async def resume_session_async(self, session_id, *, expected_lease_generation, control_id=None, timeout=None):
        fields = {"expected_lease_generation": expected_lease_generation}
        return await self.control(messages.ResumeDuplexSessionMessage, session_id, timeout, control_id, **fields)

    async def touch_session_async(self, session_id, *, activity, expected_lease_generation=None, timeout=None):
        fields = {"activity": activity, "expected_lease_generation": expected_lease_generation}
        return await self.control(messages.TouchDuplexSessionMessage, session_id, timeout, **fields)

    async def submit_command_async(self, session_id, command):
        refuses = type(command).__name__ == "AppendAudio" and self.script.refuse_appends > 0
        if refuses:
            self.script.refuse_appends -= 1
        limit = 1 if refuses else self.duplex_session_config.max_pending_input_bytes_per_session
        # The manager reads its limit at each command.
        self.manager.runtime_config = dataclasses.replace(
            self.duplex_session_config, max_pending_input_bytes_per_session=limit
        )
        self.manager.dispatch(messages.DuplexSessionCommandMessage(session_id=session_id, command=command))
        self.manager.runtime_config = self.duplex_session_config


class Omni(DuplexOmni):
    """`DuplexOmni` without the start of an engine process."""

    def __init__(self, engine):
        self.engine, self.model = engine, "openbmb/MiniCPM-o-4_5"
        self._handles, self._resume_compensations = {}, set()
        self._resume_replay_backoff_s = (0.5, 5.0)
        engine.route = self._route_engine_message

    def _final_output_handler(self):
        pass


def recorded(heard):
    """What the model heard in each session, as JSON."""
    return [
        {**dataclasses.asdict(it), "session_id": session_id, "pcm": base64.b64encode(it.pcm).decode()}
        for session_id, it in heard.items()
    ]


def build_app(engine, model):
    app = scripted_app(engine.script, lambda: recorded(engine.stages.heard), model)
    handler = OmniDuplexSessionHandler(duplex_omni=Omni(engine))

    @app.websocket("/v1/realtime")
    @app.websocket("/v1/duplex")
    async def realtime(websocket: WebSocket):
        if websocket.query_params.get("duplex") == "0":
            # As `realtime_websocket` in the wheel's api_server.py answers without its handler of turns.
            await websocket.accept()
            error = "Realtime API is not available"
            await websocket.send_json({"type": "error", "error": error, "code": "unsupported"})
            return await websocket.close()
        await handler.handle_realtime_session(websocket)

    return app


async def run_engine(engine, app, port=0):
    """Serves until the process ends. The reaper ends sessions that their clients have left."""
    stop = asyncio.Event()
    reaper = asyncio.create_task(engine.manager.reaper_loop(stop))
    await run_app(app, port)
    stop.set()
    await reaper


async def serve(args):
    limits = DuplexSessionRuntimeConfig(
        max_sessions=args.max_sessions,
        disconnect_grace_s=args.grace_s,
        reaper_interval_s=0.2,
        max_pending_input_bytes_per_session=args.pending_input_max,
    )
    script = Script(unit_ms=args.unit_ms)
    engine = Engine(script, limits, minicpm.MiniCPMO45DuplexPlugin(encode_audio), Stages(script))
    await run_engine(engine, build_app(engine, args.model))


def main():
    # A refused client is no fault of this server.
    logging.getLogger("vllm_omni").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit-ms", type=float, default=20)
    # The defaults of the wheel's deploy/minicpmo_4_5.yaml and DuplexSessionRuntimeConfig.
    parser.add_argument("--max-sessions", type=int, default=4)
    parser.add_argument("--grace-s", type=float, default=30)
    parser.add_argument("--pending-input-max", type=int, default=16 << 20)
    parser.add_argument("--model", default="openbmb/MiniCPM-o-4_5")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
