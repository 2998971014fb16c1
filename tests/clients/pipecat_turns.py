"""Measures the ends of turns of a Pipecat pipeline on the takes of tests/core/turn_end/gain.rs: python3 pipecat_turns.py

The pipeline has Pipecat's defaults: Silero, Smart Turn, and the strategies of turns for a model that hears the audio itself, so
that no turn waits for a transcript. The model's first audio comes 300 ms after the end of a turn. Time is virtual, and an
inference of Smart Turn takes as long as in gain.rs. Prints the starts (S) and ends (E) of turns in each take, in ms, and the
table. Needs `pipecat`, `openai` and `aiohttp` of tests/clients/setup and `python` of examples/engines/setup on $PYTHONPATH.
A few verdicts near the threshold change with 20 ms of audio more or less, and so with the jitter of a real clock.
"""

import asyncio
import re
import selectors
import time
import wave
from importlib.metadata import version
from pathlib import Path

import numpy as np
from loguru import logger

logger.remove()

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import InputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.workers.runner import WorkerRunner

PROJECT = Path(__file__).resolve().parents[2]
GAIN = (PROJECT / "tests/core/turn_end/gain.rs").read_text()
RATE = 16_000
FRAME_SAMPLES = 320
TAIL_MS = 6000
MODEL_MS = 300


def numbers(pattern):
    return [int(number) for number in re.search(pattern, GAIN)[1].split(",")]


PAUSES_MS = numbers(r"PAUSES_MS: .*= \[(.+)\];")
INFERENCE_MS = numbers(r"INFERENCE_MS: .*= (\d+);")[0]


def takes():
    """The takes of gain.rs, in its order: name, int16 samples at 16 kHz, pause and end of the speech in ms."""
    sentences = re.findall(r'\{ file: "(.+?)", end_ms: (\w+), places_ms: &\[(.+?)\] \}', GAIN)
    assert len(sentences) == GAIN.count(' file: "'), "gain.rs spells a sentence in another way"
    for file, end_ms, places_ms in sentences:
        with wave.open(str(PROJECT / "examples/speech" / file)) as recording:
            spoken = np.frombuffer(recording.readframes(recording.getnframes()), np.int16)
        for place_ms in map(int, places_ms.split(",")):
            for pause_ms in PAUSES_MS:
                before, after = np.split(spoken, [16 * place_ms])
                samples = np.concatenate([before, room_noise(spoken, pause_ms), after, room_noise(spoken, TAIL_MS)])
                yield f"{file} {place_ms}+{pause_ms}", samples, pause_ms, int(end_ms) + pause_ms


def room_noise(recording, ms):
    """The quietest 60 ms of a recording, there and back."""
    stretches = recording[: len(recording) // 960 * 960].reshape(-1, 960)
    energies = (stretches.astype(np.int64) ** 2).sum(axis=1)
    quietest = stretches[np.where(energies > 0, energies, energies.max() + 1).argmin()]
    return np.resize(np.concatenate([quietest, quietest[::-1]]), 16 * ms)


class VirtualClock(selectors.DefaultSelector):
    """Clock from 0 on that moves to the next timer when no task can run."""

    def __init__(self):
        super().__init__()
        VirtualClock.now_s = 0.0

    def select(self, timeout=None):
        assert timeout is not None, "every task waits, and no timer is set"
        VirtualClock.now_s += max(timeout, 0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time. An inference of Smart Turn takes time; other work of threads takes none."""

    def __init__(self):
        super().__init__(VirtualClock())

    def run_in_executor(self, executor, function, *arguments):
        is_inference = getattr(function, "__name__", "") == "_process_speech_segment" and arguments[0]
        seconds = INFERENCE_MS / 1000 if is_inference else 0
        return self.create_task(asyncio.sleep(seconds, function(*arguments)))


async def turns(samples):
    """Streams samples into a new pipeline. Returns the starts and ends of turns, ms: [("S", 720), ("E", 4000)]."""
    params = LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    pair = LLMContextAggregatorPair(LLMContext(), user_params=params, realtime_service_mode=True)
    worker = PipelineWorker(Pipeline([*pair]), params=PipelineParams(audio_in_sample_rate=RATE))
    started, events = asyncio.Event(), []
    note = lambda name: events.append((name, round(1000 * (time.monotonic() - begin_s))))
    worker.add_event_handler("on_pipeline_started", lambda *_: started.set())
    pair.user().add_event_handler("on_user_turn_started", lambda *_: note("S"))
    pair.user().add_event_handler("on_user_turn_stopped", lambda *_: note("E"))
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await started.wait()
    begin_s = time.monotonic()
    for at in range(0, len(samples), FRAME_SAMPLES):
        # As in gain.rs, a frame arrives at the time of its first sample.
        await asyncio.sleep(max(0, begin_s + at / RATE - time.monotonic()))
        audio = samples[at : at + FRAME_SAMPLES].tobytes()
        await worker.queue_frame(InputAudioRawFrame(audio=audio, sample_rate=RATE, num_channels=1))
    await worker.end()
    await running
    return events


def latency(events, end_ms):
    """Time from the end of the speech to the first audio after it, ms, or `None`. A new turn withdraws an answer."""
    at = {name: [at for other, at in events if other == name] for name in "SE"}
    answers = [end + MODEL_MS for end in at["E"] if not any(end <= start < end + MODEL_MS for start in at["S"])]
    return next((answer - end_ms for answer in answers if answer >= end_ms), None)


def main():
    time.monotonic = time.time = lambda: VirtualClock.now_s
    cuts, short_cuts, latencies, wasted = [], [], [], 0
    for name, samples, pause_ms, end_ms in takes():
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            events = runner.run(turns(samples))
        ends = [at for event, at in events if event == "E"]
        cuts.append(any(at < end_ms for at in ends))
        short_cuts += cuts[-1:] if pause_ms <= 1000 else []
        latencies.append(latency(events, end_ms))
        wasted += max(len(ends) - 1, 0)
        print(f"{name}: speech ends at {end_ms}; {events}", flush=True)
    answered = sorted(ms for ms in latencies if ms is not None)
    p50, p90 = (answered[len(answered) * share // 100] for share in (50, 90))
    percent = lambda cuts: f"{100 * sum(cuts) / len(cuts):.0f} %"
    print(f"{len(cuts)} sentences with a pause; * beyond the model's own time")
    print("| policy | p50 | p50* | p90 | cut, pauses up to 1 s | cut, all | wasted questions | unanswered |")
    print("|---|---|---|---|---|---|---|---|")
    row = [f"Pipecat {version('pipecat-ai')}", f"{p50} ms", f"{p50 - MODEL_MS} ms", f"{p90} ms"]
    row += [percent(short_cuts), percent(cuts), str(wasted), str(len(cuts) - len(answered))]
    print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
