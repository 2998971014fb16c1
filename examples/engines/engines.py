"""Speech engines behind two pipes, on a CPU: Moonshine (base, English) recognises, flite speaks.

Usage: python3 engines.py DIR, where DIR was prepared by the `setup` script beside this file.

Each message is one line of JSON. Audio follows as raw mono float32, little-endian.

  at the start      <- {"ready":true,"recogniser":"moonshine-base","synthesiser":"flite awb"}
                       (or {"ready":false,"error":"..."}, and the end)
  {"id":1,"op":"recognise","bytes":N} + N bytes at 16 kHz     <- {"id":1,"text":"..."}
  {"id":2,"op":"speak","text":"...","voice":"awb"}            <- {"id":2,"bytes":N} + N bytes at 24 kHz
  a request that fails                                        <- {"id":...,"error":"..."}

Requests are answered in order. The process ends when standard input ends.
"""

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import unicodedata
import wave

RECOGNISER = "moonshine-base"
VOICE = "awb"

RECOGNISE_RATE_HZ = 16_000
SPEAK_RATE_HZ = 24_000

# The model was trained on clips of at most about 30 s, and its convolutions need about 0.1 s.
MAX_CLIP_SAMPLES = 30 * RECOGNISE_RATE_HZ
MIN_CLIP_SAMPLES = RECOGNISE_RATE_HZ // 10
# Below -60 dBFS nothing is audible, and a greedy decoder invents words for silence.
SILENT_PEAK = 1e-3
# The model often finds no words in a short sentence with background noise before or after it, and does once the noise is
# cut off. These are the margins around the loud part in seconds, tried in this order.
CUT_MARGINS_S = (0.1, 0.0)
# A hop of 20 ms is loud if its RMS level is within 20 dB of the loudest hop's.
LOUD_HOP_SAMPLES = RECOGNISE_RATE_HZ // 50
LOUD_RMS_RATIO = 0.1
# Speech has fewer tokens per second than this; beyond it the decoder repeats itself (the model's own notes).
TOKENS_PER_SECOND = 6.5
MIN_TOKEN_LIMIT = 8
START_TOKEN, END_TOKEN = 1, 2

MAX_AUDIO_BYTES = 10 * 60 * RECOGNISE_RATE_HZ * 4
MAX_TEXT_BYTES = 10_000
MAX_HEADER_BYTES = 1 << 20
# Shorter than the parent's timeout.
SPEAK_TIMEOUT_S = 30


class RequestRejected(Exception):
    """This request cannot be served; the next one may."""


class Recogniser:
    def __init__(self, directory):
        import onnxruntime
        import tokenizers

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3

        def load(name):
            path = os.path.join(directory, name + ".onnx")
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        self.encoder = load("encoder_model")
        self.decoder = load("decoder_model_merged")
        self.tokenizer = tokenizers.Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
        self.encoder_inputs = {i.name for i in self.encoder.get_inputs()}
        self.decoder_inputs = {i.name for i in self.decoder.get_inputs()}
        # Batch, heads, past, head dimension: the first and third are variable, and the past starts empty.
        self.empty_past = {
            i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
            for i in self.decoder.get_inputs()
            if i.name.startswith("past_key_values.")
        }
        self.past_names = [o.name.replace("present", "past_key_values", 1) for o in self.decoder.get_outputs()[1:]]

    def recognise(self, samples):
        texts = (self.recognise_clip(clip) for clip in split_clips(samples))
        return " ".join(text for text in texts if text)

    def recognise_clip(self, samples):
        if len(samples) < MIN_CLIP_SAMPLES or np.abs(samples).max() < SILENT_PEAK:
            return ""
        clips = itertools.chain([samples], (cut_to_loud_part(samples, margin) for margin in CUT_MARGINS_S))
        return next(filter(None, map(self.decode, clips)), "")

    def decode(self, samples):
        audio = samples[np.newaxis, :]
        mask = np.ones(audio.shape, np.int64)
        feed = {"input_values": audio}
        if "attention_mask" in self.encoder_inputs:
            feed["attention_mask"] = mask
        hidden = self.encoder.run(None, feed)[0]

        token_limit = max(MIN_TOKEN_LIMIT, math.ceil(len(samples) / RECOGNISE_RATE_HZ * TOKENS_PER_SECOND))
        past, tokens, token = dict(self.empty_past), [], START_TOKEN
        for step in range(token_limit):
            feed = {
                "input_ids": np.array([[token]], np.int64),
                "encoder_hidden_states": hidden,
                "use_cache_branch": np.array([step > 0]),
                **past,
            }
            if "encoder_attention_mask" in self.decoder_inputs:
                feed["encoder_attention_mask"] = mask
            logits, *present = self.decoder.run(None, feed)
            token = int(logits[0, -1].argmax())
            if token == END_TOKEN:
                break
            tokens.append(token)
            for name, value in zip(self.past_names, present):
                # The keys of the audio are computed once; the cached branch returns empty ones.
                if step == 0 or ".decoder." in name:
                    past[name] = value
        return self.tokenizer.decode(tokens, skip_special_tokens=True).strip()


def cut_to_loud_part(samples, margin_s):
    """Cuts quiet audio off both ends, except for a margin."""
    hops = samples[: len(samples) // LOUD_HOP_SAMPLES * LOUD_HOP_SAMPLES].reshape(-1, LOUD_HOP_SAMPLES)
    levels = np.sqrt(np.square(hops, dtype=np.float64).mean(axis=1))
    loud = np.flatnonzero(levels >= levels.max() * LOUD_RMS_RATIO)
    margin = int(margin_s * RECOGNISE_RATE_HZ)
    begin, end = loud[0] * LOUD_HOP_SAMPLES - margin, (loud[-1] + 1) * LOUD_HOP_SAMPLES + margin
    # The model's convolutions need a minimum of audio.
    return samples[max(0, begin) : max(end, begin + MIN_CLIP_SAMPLES)]


def split_clips(samples):
    """Splits long audio at the quietest tenth of a second within the last ten seconds of each part."""
    hop, window = RECOGNISE_RATE_HZ // 50, RECOGNISE_RATE_HZ // 10
    while len(samples) > MAX_CLIP_SAMPLES:
        begin = MAX_CLIP_SAMPLES - 10 * RECOGNISE_RATE_HZ
        energy = np.square(samples[begin:MAX_CLIP_SAMPLES], dtype=np.float64)
        total = np.concatenate(([0.0], np.cumsum(energy)))
        loudness = (total[window:] - total[:-window])[::hop]
        cut = begin + int(loudness.argmin()) * hop + window // 2
        yield samples[:cut]
        samples = samples[cut:]
    yield samples


class Synthesiser:
    def __init__(self, directory):
        own = os.path.join(directory, "bin", "flite")
        self.program = own if os.path.exists(own) else shutil.which("flite")
        if not self.program:
            raise RequestRejected("flite is not installed")
        self.environment = dict(os.environ)
        if self.program == own:
            # The fetched flite finds its voices only here; the rest of the process must not see these libraries.
            found = [os.path.join(directory, "lib"), os.environ.get("LD_LIBRARY_PATH")]
            self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, found))
        # "Voices available: kal awb_time kal16 awb rms slt"
        self.voices = self.run_flite("-lv").partition(":")[2].split()
        if VOICE not in self.voices:
            raise RequestRejected(f"flite has no voice {VOICE}")

    def run_flite(self, *arguments):
        try:
            done = subprocess.run(
                [self.program, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SPEAK_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise RequestRejected(f"flite took longer than {SPEAK_TIMEOUT_S} s") from None
        except OSError as error:
            raise RequestRejected(f"flite does not run: {error}") from None
        if done.returncode != 0:
            raise RequestRejected(f"flite failed: {done.stderr.decode(errors='replace').strip()[-200:]}")
        return done.stdout.decode(errors="replace")

    def synthesise(self, text, voice):
        # flite takes an unknown name for the path of a voice file, so only names from its own list are accepted.
        if voice not in self.voices:
            raise RequestRejected(f"no voice {voice!r}; there are: {' '.join(self.voices)}")
        if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
            raise RequestRejected(f"more than {MAX_TEXT_BYTES} bytes of text")
        speakable = to_ascii(text)
        if not any(c.isalnum() for c in speakable):
            if any(c.isalnum() for c in text):
                raise RequestRejected("flite speaks English only, and nothing of this text is")
            return np.zeros(0, np.float32)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "speech.wav")
            self.run_flite("-voice", voice, "-t", speakable, "-o", path)
            with wave.open(path, "rb") as speech:
                rate = speech.getframerate()
                pcm = np.frombuffer(speech.readframes(speech.getnframes()), "<i2")
        return resample(pcm.astype(np.float32) / 32_768, rate, SPEAK_RATE_HZ)


def to_ascii(text):
    """Converts the text to ASCII, because flite reads bytes: a curly apostrophe would count as three letters."""
    marks = str.maketrans("‘’‛“”„‐‑–—", "'''\"\"\"----")
    flat = unicodedata.normalize("NFKD", text.translate(marks))
    return re.sub(r"[^\x20-\x7e]+", lambda m: " " if m[0].isspace() else "", flat).strip()


def resample(samples, rate_hz, target_hz):
    """Resamples by a rational factor with one Kaiser-windowed sinc (80 dB), aligned to the input."""
    shared = math.gcd(rate_hz, target_hz)
    up, down = target_hz // shared, rate_hz // shared
    if up == down or not len(samples):
        return samples
    half = 32 * max(up, down)
    # A little below the lower Nyquist rate: the filter's slope must end before it.
    cutoff = 0.94 / max(up, down)
    taps = cutoff * np.sinc(cutoff * np.arange(-half, half + 1)) * np.kaiser(2 * half + 1, 8.0)
    spread = np.zeros(len(samples) * up, np.float32)
    spread[::up] = samples
    full = np.convolve(spread, (taps * up).astype(np.float32))
    return full[half : half + len(spread) : down]


def read_exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def read_audio(stream, count):
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise RequestRejected('"bytes" must be a whole number')
    if count > MAX_AUDIO_BYTES:
        # Discards the audio, which would otherwise be read as requests.
        while count:
            count -= len(read_exactly(stream, min(count, 1 << 16)))
        raise RequestRejected(f"more than {MAX_AUDIO_BYTES} bytes of audio")
    data = read_exactly(stream, count)
    if count % 4:
        raise RequestRejected(f"{count} bytes are not a whole number of float32 samples")
    return np.nan_to_num(np.frombuffer(data, "<f4"), posinf=0.0, neginf=0.0)


def handle_request(request, stream, recogniser, synthesiser):
    """The reply's header and the bytes after it."""
    # Reads the audio first, so that the next header is at the expected position.
    audio = read_audio(stream, request.get("bytes", 0))
    op = request.get("op")
    if op == "recognise":
        return {"text": recogniser.recognise(audio)}, b""
    if op == "speak":
        text, voice = request.get("text"), request.get("voice", VOICE)
        if not isinstance(text, str) or not isinstance(voice, str):
            raise RequestRejected('"text" and "voice" must be strings')
        speech = synthesiser.synthesise(text, voice).astype("<f4").tobytes()
        return {"bytes": len(speech)}, speech
    raise RequestRejected(f"no such operation: {op!r}")


def read_request(stream):
    """The next request, or None at the end of the input."""
    line = stream.readline(MAX_HEADER_BYTES)
    if not line:
        return None
    if not line.endswith(b"\n"):
        while line and not line.endswith(b"\n"):
            line = stream.readline(MAX_HEADER_BYTES)
        raise RequestRejected(f"a request of more than {MAX_HEADER_BYTES} bytes")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestRejected(f"not JSON: {error}") from None
    if not isinstance(request, dict):
        raise RequestRejected("a request is a JSON object")
    return request


def serve(stream, send, recogniser, synthesiser):
    while True:
        request_id = None
        try:
            request = read_request(stream)
            if request is None:
                return
            request_id = request.get("id")
            header, body = handle_request(request, stream, recogniser, synthesiser)
        except EOFError:
            return
        except RequestRejected as rejection:
            header, body = {"error": str(rejection)}, b""
        except Exception as error:  # a failed request must not end the process
            traceback.print_exc()
            header, body = {"error": f"{type(error).__name__}: {error}"}, b""
        send({"id": request_id, **header}, body)


def main():
    # A terminal interrupt is for the parent, which ends this process by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Only replies use standard output: output of libraries goes to standard error.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(header, body=b""):
        replies.write(json.dumps(header).encode() + b"\n" + body)
        replies.flush()

    try:
        if len(sys.argv) != 2:
            raise RequestRejected("usage: engines.py DIR")
        directory = os.path.abspath(sys.argv[1])
        sys.path.insert(0, os.path.join(directory, "python"))
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        global np
        import numpy as np

        recogniser = Recogniser(os.path.join(directory, RECOGNISER))
        synthesiser = Synthesiser(os.path.join(directory, "flite"))
    except Exception as error:
        send({"ready": False, "error": str(error) or type(error).__name__})
        sys.exit(1)

    try:
        send({"ready": True, "recogniser": RECOGNISER, "synthesiser": f"flite {VOICE}"})
        serve(sys.stdin.buffer, send, recogniser, synthesiser)
    except BrokenPipeError:
        # The parent has closed the pipe; skip the interpreter's last flush.
        os._exit(0)


if __name__ == "__main__":
    main()
