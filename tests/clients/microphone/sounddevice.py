"""A microphone that plays a recording: the part of `sounddevice` that the `macaw` command line uses.

$MICROPHONE names a WAV file (16 kHz, mono, 16 bit). It is captured once in real time; then silence follows.
"""

import os
import signal
import threading
import time
import wave

import numpy as np


# Tests may run where Ctrl-C is ignored, and child processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class InputStream:
    def __init__(self, samplerate, channels, dtype, blocksize, callback):
        with wave.open(os.environ["MICROPHONE"]) as recording:
            shape = (recording.getframerate(), recording.getnchannels(), recording.getsampwidth())
            assert shape == (samplerate, channels, 2), f"the recording is {shape}, {samplerate} Hz is wanted"
            heard = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
        self.samples = (heard / 32768).astype(dtype).reshape(-1, channels)
        self.silence = np.zeros((blocksize, channels), dtype)
        self.blocksize, self.samplerate, self.callback = blocksize, samplerate, callback
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def close(self):
        assert self.stopped.is_set(), "closed while it runs"

    def run(self):
        began, at = time.monotonic(), 0
        while True:
            block = np.concatenate((self.samples[at : at + self.blocksize], self.silence))[: self.blocksize]
            at += self.blocksize
            # A block arrives when its last sample was recorded.
            if self.stopped.wait(max(0.0, began + at / self.samplerate - time.monotonic())):
                return
            self.callback(block, self.blocksize, None, None)
