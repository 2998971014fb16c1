"""vLLM-Omni's duplex endpoint with the plug-in of another model than MiniCPM-o, without the model: handler, session manager and
plug-in are the wheel's, unchanged.

    vllm_omni_plugin_server.py PLUGIN [--port PORT]          PLUGIN is personaplex, nemotron or qwen3

Prints one JSON line with the port. `POST /script` and `GET /record` are those of vllm_omni_server.py. PersonaPlex takes frames
of 80 ms, 24 kHz float32, and speaks without a pause: silence while it listens. Nemotron VoiceChat takes frames of 80 ms, 16 kHz,
speaks at 22.05 kHz, and may call a function. Qwen3-Omni answers a committed turn.
"""

import argparse
import asyncio
import base64
import dataclasses
import logging
import types

from package_imports import stand_in, without_init

MODELS = "vllm_omni.model_executor.models"
# Imports the duplex server, which stands in for the rest.
stand_in("tokenizers", "soxr", "librosa", "safetensors")
without_init(
    *(f"{MODELS}.personaplex", f"{MODELS}.personaplex.duplex", f"{MODELS}.nemotron_voicechat"),
    *(f"{MODELS}.nemotron_voicechat.duplex", f"{MODELS}.qwen3_omni", f"{MODELS}.qwen3_omni.duplex"),
)

import numpy as np  # noqa: E402
import vllm_omni_server as duplex  # noqa: E402
import vllm.tool_parsers.utils as parser_utils  # noqa: E402


def partial_tag_overlap(text, tag):
    """Length of the longest end of the text that begins the tag."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if text.endswith(tag[:size])), 0)


parser_utils.partial_tag_overlap = partial_tag_overlap

from vllm_omni.config.stage_config import DuplexSessionRuntimeConfig  # noqa: E402
from vllm_omni.engine.duplex import contracts  # noqa: E402
from vllm_omni.model_executor.models.nemotron_voicechat.duplex.plugin import NemotronVoiceChatDuplexPlugin  # noqa: E402
from vllm_omni.model_executor.models.personaplex.duplex.plugin import PersonaPlexDuplexPlugin  # noqa: E402
from vllm_omni.model_executor.models.qwen3_omni.duplex.plugin import Qwen3OmniDuplexPlugin  # noqa: E402
from vllm_omni.outputs import OmniRequestOutput  # noqa: E402

FRAMES_PER_PART = 12


@dataclasses.dataclass
class Script(duplex.Script):
    #: A call before the answer, as Nemotron's function channel writes it.
    call: str | None = None


class FrameStages(duplex.Stages):
    """A model that is clocked by its input: each frame in is a frame out."""

    async def step(self, context, payload):
        heard = self.heard[context.session_id]
        samples = np.frombuffer(base64.b64decode(payload["audio"]), dtype="<f4")
        heard.units += 1
        heard.silence_units += "is_speech" not in payload
        heard.pcm += (samples * 32768).round().clip(-32768, 32767).astype("<i2").tobytes()
        await asyncio.sleep(self.script.unit_ms / 1000)
        is_loud = np.sqrt(np.mean(samples**2)) >= duplex.LOUD_RMS
        self.answer_frame(context, self.next_frame(context.request_id, is_loud, payload))

    def next_frame(self, request_id, is_loud, payload):
        """Number of the frame that the model says now, from 1 on; 0 while it listens."""
        turn = self.turns.setdefault(request_id, {"heard": False, "said": None, "quiet": 0, "loud": 0})
        turn["heard"] |= is_loud
        turn["quiet"] = 0 if is_loud else turn["quiet"] + 1
        turn["loud"] = turn["loud"] + 1 if is_loud else 0
        # Full duplex: the user interrupts the model, and is answered.
        if turn["loud"] >= 4 and not self.script.never_yields:
            turn["said"] = None
        # A pause in a word is no end: half a second is.
        if turn["said"] is None and turn["heard"] and turn["quiet"] >= 6:
            turn.update(heard=False, said=0)
        if turn["said"] is None or payload.get("force_listen") is True:
            return 0
        turn["said"] += 1
        said = turn["said"]
        if said >= FRAMES_PER_PART * self.script.turn_units and not self.script.never_yields:
            turn["said"] = None
        return said

    def send(self, stage, context, *, token_ids=(), meta=None, text="", **multimodal):
        runner = self.manager.runner_for_request_id(context.request_id)
        if runner is None:
            return
        completion = types.SimpleNamespace(text=text, token_ids=[*token_ids], multimodal_output=None, finish_reason=None)
        output = OmniRequestOutput(request_id=context.request_id, stage_id=stage, outputs=[completion], finished=False)
        output._multimodal_output = multimodal
        out = contracts.DuplexOutputContext(
            identity=contracts.DuplexRequestIdentity(context.session_id, context.fence),
            final_stage_id=self.stage_count - 1,
            segment_finished=True,
            segment_token_ids=token_ids,
            segment_output_metadata=meta or {},
        )
        runner.on_stage_output(stage, output, None, request_id=context.request_id, context=out)


class PersonaPlex(FrameStages):
    stage_count = 2
    FRAME = 1920

    def answer_frame(self, context, said):
        turn = self.turns[context.request_id]
        level = 0.05 * (1 + (said - 1) // FRAMES_PER_PART) if said else 0
        turn.setdefault("audio", []).append(np.full(self.FRAME, level, dtype=np.float32))
        if said % FRAMES_PER_PART == 1:
            turn["text"] = turn.get("text", "") + f"Part {1 + said // FRAMES_PER_PART}. "
        # The last stage sends all that it has made, each time.
        self.send(1, context, text=turn.get("text", ""), audio=np.concatenate(turn["audio"]), sr=24_000)


class Nemotron(FrameStages):
    stage_count = 3
    FRAME, RATE = 1764, 22_050

    def answer_frame(self, context, said):
        turn = self.turns[context.request_id]
        is_last = bool(said) and turn["said"] is None
        if said == 1 and self.script.call is not None:
            ids = [Tokenizer.CALL, *Tokenizer().encode(self.script.call, add_special_tokens=False), Tokenizer.CALL_END]
            for token in ids:
                self.send(0, context, token_ids=(Tokenizer.PAD,), meta={"nvc_function_token": token})
        word = f"Part {1 + said // FRAMES_PER_PART}. " if said % FRAMES_PER_PART == 1 else ""
        token = Tokenizer.EOS if is_last else Tokenizer.word(word) if word else Tokenizer.BOS if said else Tokenizer.PAD
        self.send(0, context, token_ids=(token,))
        level = 0.05 * (1 + (said - 1) // FRAMES_PER_PART) if said else 0
        self.send(2, context, audio=[np.full(self.FRAME, level, dtype=np.float32)], sr=self.RATE)


class Tokenizer:
    """A tokenizer with a token for each byte, and one for each word that the model says."""

    PAD, BOS, EOS, CALL, CALL_END = 1000, 1001, 1002, 1003, 1004
    words = []

    @classmethod
    def word(cls, text):
        cls.words.append(text)
        return 2000 + len(cls.words) - 1

    def encode(self, text, add_special_tokens):
        return list(text.encode())

    def decode(self, ids, skip_special_tokens):
        said = [self.words[id - 2000].encode() if id >= 2000 else bytes([id]) for id in ids if id < 256 or id >= 2000]
        return b"".join(said).decode()


class Qwen3(FrameStages):
    stage_count = 3

    async def submit(self, submission):
        context = submission.context
        task = asyncio.create_task(self.turn(context, submission.prompt))
        task.add_done_callback(lambda done: done.cancelled() or done.result())
        return contracts.DuplexStageSubmissionResult(context.request_id, context.stage_id, 0)

    async def turn(self, context, prompt):
        heard = self.heard[context.session_id]
        heard.units += 1
        for samples, _rate in prompt["multi_modal_data"].get("audio", [])[-1:]:
            heard.pcm += (samples * 32768).round().clip(-32768, 32767).astype("<i2").tobytes()
        for part in range(1, self.script.turn_units + 1):
            await asyncio.sleep(self.script.unit_ms / 1000)
            self.send(0, context, text=f"Part {part}. ")
            self.send(2, context, audio=[np.full(duplex.OUTPUT_RATE, 0.05 * part, dtype=np.float32)], sr=duplex.OUTPUT_RATE)
        self.send(2, context, is_finished=True)

    def send(self, stage, context, *, is_finished=False, **fields):
        runner = self.manager.runner_for_request_id(context.request_id)
        if runner is None:
            return
        text = fields.pop("text", "")
        completion = types.SimpleNamespace(text=text, token_ids=[1], multimodal_output=None, finish_reason=None)
        output = OmniRequestOutput(
            request_id=context.request_id, stage_id=stage, outputs=[completion], finished=is_finished
        )
        output._multimodal_output = fields
        out = contracts.DuplexOutputContext(
            identity=contracts.DuplexRequestIdentity(context.session_id, context.fence),
            final_stage_id=self.stage_count - 1,
            segment_finished=is_finished,
            segment_token_ids=(1,),
            segment_output_metadata={},
        )
        runner.on_stage_output(stage, output, None, request_id=context.request_id, context=out)


def personaplex(script):
    plugin = PersonaPlexDuplexPlugin(duplex.encode_audio)

    async def prefill_slots(*_):
        return 3

    # Reads the voice and the tokenizer of the checkpoint.
    plugin._prefill_slots_for = prefill_slots
    return plugin, PersonaPlex(script), types.SimpleNamespace(model="nvidia/personaplex-7b-v1")


def nemotron(script):
    plugin = NemotronVoiceChatDuplexPlugin(duplex.encode_audio)
    names = {"bos": Tokenizer.BOS, "eos": Tokenizer.EOS, "pad": Tokenizer.PAD}
    special = {f"nvc_text_{name}_id": token for name, token in names.items()}
    special |= {"nvc_function_sotc_id": Tokenizer.CALL, "nvc_function_eotc_id": Tokenizer.CALL_END}
    special |= {"nvc_function_eotr_id": 1005, "nvc_tokenizer_ref": "scripted"}
    plugin._tokenizers["scripted"] = (special, Tokenizer())
    stt = {"pretrained_llm": "scripted"}
    hf_config = types.SimpleNamespace(stt_cfg=stt)
    model = "nvidia/nemotron-voicechat"
    return plugin, Nemotron(script), types.SimpleNamespace(model=model, max_model_len=100_000, hf_config=hf_config)


def qwen3(script):
    plugin = Qwen3OmniDuplexPlugin(duplex.encode_audio)
    plugin.processor = types.SimpleNamespace(apply_chat_template=lambda messages, **_: str(messages))
    return plugin, Qwen3(script), types.SimpleNamespace(model="Qwen/Qwen3-Omni", trust_remote_code=True)


def main():
    logging.getLogger("vllm_omni").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("plugin", choices=["personaplex", "nemotron", "qwen3"])
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    script = Script(unit_ms=1)
    plugin, stages, config = globals()[args.plugin](script)
    limits = DuplexSessionRuntimeConfig(max_sessions=4, reaper_interval_s=0.2)
    engine = duplex.Engine(script, limits, plugin, stages, config)
    asyncio.run(duplex.run_engine(engine, duplex.build_app(engine, config.model), args.port))


if __name__ == "__main__":
    main()
