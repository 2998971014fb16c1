"""SGLang-Omni's own realtime server with a script in place of its model.

    sglang_omni_server.py [OPTION…]

Routes, transport, session runtime, negotiation and MiniCPM-o's adapter are those of the package, unchanged; only the client
of its pipeline is replaced. Prints one JSON line for the port, then one for each session that opens and each unit. The script
answers each stretch of audible units that a silent unit follows, as the simulator does: its speech is the same ramp.
"""

import argparse
import array
import asyncio
import importlib.abc
import importlib.machinery
import json
import logging
import math
import socket
import sys
import time

MODEL_LIBRARIES = """av httpx huggingface_hub PIL pybase64 sglang soundfile torch torchaudio torchvision transformers xxhash
    zmq""".split()


class AnyMember(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn

    def __or__(cls, other):
        return cls

    __ror__ = __or__


class StandIn(metaclass=AnyMember):
    """A class of a library that only the model needs. Works as a base, a decorator and a type."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if args else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __class_getitem__(cls, item):
        return cls


class StandInModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in MODEL_LIBRARIES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        def member(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (StandIn,), {})

        module.__getattr__ = member


sys.meta_path.append(StandInModules())

import uvicorn
from sglang_omni.models.minicpm_o.native_config import MiniCPMODuplexPipelineConfig
from sglang_omni.models.minicpm_o.session_adapters import build_realtime_deployment
from sglang_omni.proto.session import OutputChunk, SessionIdentity
from sglang_omni.serve.openai_api import create_app
from sglang_omni.serve.realtime.manager import RealtimeDeployment
from sglang_omni.serve.realtime.types import RuntimeLimits

AUDIBLE_RMS = 0.005
OUTPUT_RATE_HZ = 24000
LAST_UNIT_SAMPLES = 14400
RAMP_SAMPLES = 4095


def report(**fields):
    print(json.dumps(fields), flush=True)


def watermark(turn, start, end):
    """The simulator's ramp, as int16."""
    levels = array.array("h")
    for index in range(start, end):
        level = 1 + turn % 8 * RAMP_SAMPLES + index % RAMP_SAMPLES
        levels.append(-level if index // RAMP_SAMPLES % 2 else level)
    return levels.tobytes()


class Session:
    """The scripted model of one session."""

    def __init__(self, identity, params, options, turns):
        self.identity = identity
        self.options = options
        self.turns = turns
        self.listens_left = params["force_listen_count"]
        self.outputs = asyncio.Queue()
        self.units = 0
        self.audible_units = 0
        self.texts = None
        self.spoken = 0
        self.turn = 0
        self.record = open(f"{options.record}/{identity.id}.pcm", "wb") if options.record else None

    def step(self, chunk):
        payload = chunk.payload if isinstance(chunk.payload, dict) else {"pcm": chunk.payload, "images": []}
        samples = array.array("h", payload["pcm"])
        rms = math.sqrt(sum(sample * sample for sample in samples) / max(len(samples), 1)) / 32768
        is_audible = rms >= AUDIBLE_RMS
        images = [len(image) for image in payload["images"]]
        report(unit=chunk.seq, session=self.identity.id, t_ms=chunk.t_start_ms, duration_ms=chunk.duration_ms, images=images)
        self.units += 1
        if self.options.context_units is not None and self.units > self.options.context_units:
            raise RuntimeError("context_exhausted: the session reached the thinker context length of 8192 tokens")
        if self.record:
            self.record.write(payload["pcm"])
            self.record.flush()
        if self.texts is not None and is_audible and self.options.yields:
            self.texts = None
            return dict(text="", pcm=b"", end_of_turn=True)
        must_listen = self.listens_left > 0
        self.listens_left -= must_listen
        self.audible_units += is_audible
        if self.texts is None and not is_audible and not must_listen and self.audible_units:
            self.begin_turn()
        if self.texts is None:
            return dict(text="", pcm=b"", end_of_turn=False)
        return self.speak()

    def begin_turn(self):
        words = f"I heard {self.audible_units:.1f} seconds of speech.".split(" ")
        units = self.options.turn_units
        cuts = [len(words) * unit // units for unit in range(units + 1)]
        self.texts = [" ".join(words[a:b]) + " " * (b < len(words)) for a, b in zip(cuts, cuts[1:])]
        self.audible_units = 0
        self.spoken = 0
        self.turns[0] += 1
        self.turn = self.turns[0]

    def speak(self):
        start = self.spoken * OUTPUT_RATE_HZ
        text = self.texts[self.spoken]
        self.spoken += 1
        is_last = self.spoken == len(self.texts)
        end = start + (LAST_UNIT_SAMPLES if is_last else OUTPUT_RATE_HZ)
        if is_last:
            self.texts = None
        return dict(text=text, pcm=watermark(self.turn, start, end), end_of_turn=is_last)


class Pipeline:
    """In place of `sglang_omni.client.Client`."""

    def __init__(self, options):
        self.options = options
        self.sessions = {}
        self.turns = [0]

    def health(self):
        return {"running": time.monotonic() >= self.options.ready_at}

    async def open_session(self, request, *, limits=None, session_id=None):
        await asyncio.sleep(self.options.open_ms / 1000)
        if self.options.refuse_open > 0:
            self.options.refuse_open -= 1
            raise RuntimeError("no capacity for another session")
        identity = SessionIdentity(session_id)
        self.sessions[session_id] = Session(identity, request.params, self.options, self.turns)
        voices = {key: len(request.params[key]) for key in ("reference_audio", "tts_reference_audio") if key in request.params}
        report(session=session_id, instructions=request.params["instructions"], voices=voices)
        return identity

    async def append_session(self, identity, chunk, *, ready_timestamp_ns=None, ready_run_id=None):
        session = self.sessions[identity.id]
        await asyncio.sleep(self.options.unit_ms / 1000)
        try:
            value = session.step(chunk)
        except RuntimeError as exc:
            session.outputs.put_nowait(exc)
            return chunk.seq
        for kind, payload in (("data", value), ("input_done", None)):
            output = OutputChunk(
                identity, 0, chunk.seq, "audio", chunk.t_start_ms, chunk.duration_ms, payload, eos=chunk.eos, kind=kind
            )
            session.outputs.put_nowait(output)
        return chunk.seq

    async def session_outputs(self, identity):
        session = self.sessions[identity.id]
        while True:
            output = await session.outputs.get()
            if isinstance(output, Exception):
                raise output
            yield output

    async def close_session(self, identity):
        self.sessions.pop(identity.id, None)
        report(closed=identity.id)


def parse_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--turn-units", type=int, default=3)
    parser.add_argument("--context-units", type=int, help="the next unit does not fit the context")
    parser.add_argument("--refuse-open", type=int, default=0, metavar="TIMES")
    parser.add_argument("--open-ms", type=int, default=0)
    parser.add_argument("--unit-ms", type=int, default=0)
    parser.add_argument("--ready-ms", type=int, default=0, help="not ready for that time")
    parser.add_argument("--max-input-bytes", type=int, default=RuntimeLimits.max_input_bytes)
    parser.add_argument("--update-timeout-s", type=float, default=RuntimeLimits.session_update_timeout_s)
    parser.add_argument("--yields", action="store_true", help="a turn ends when the user speaks")
    parser.add_argument("--record", metavar="DIR", help="writes the audio of each session to DIR/ID.pcm")
    options = parser.parse_args()
    options.ready_at = time.monotonic() + options.ready_ms / 1000
    return options


def main():
    logging.disable(logging.CRITICAL)
    options = parse_options()
    pipeline = Pipeline(options)
    config = MiniCPMODuplexPipelineConfig(model_path="openbmb/MiniCPM-o-4_5", max_sessions=options.sessions)
    deployment = build_realtime_deployment(pipeline, config)
    limits = RuntimeLimits(max_input_bytes=options.max_input_bytes, session_update_timeout_s=options.update_timeout_s)
    deployment = RealtimeDeployment(
        deployment.capabilities, deployment.adapter_factory, limits, max_connections=deployment.max_connections
    )
    app = create_app(pipeline, model_name=config.name, realtime_deployment=deployment, enable_realtime=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        report(port=listener.getsockname()[1])
        uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off")).run(sockets=[listener])


main()
