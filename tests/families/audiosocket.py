"""A stand-in of Asterisk's AudioSocket application: one call over a bare TCP connection, as app_audiosocket.c makes it.

    audiosocket.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

BASE_URL is that of the [[tcp]] listener, such as tcp://127.0.0.1:9092. Sends 20 ms of 8 kHz each 20 ms, silence too, and plays
what comes at once; there is no public client to run.
"""

import array
import json
import socket
import struct
import sys
import threading
import time
import urllib.parse
import uuid
import wave

HANGUP, UUID, DTMF, AUDIO = 0x00, 0x01, 0x03, 0x10
RATE, FRAME_S = 8000, 0.02
FRAME_BYTES = int(RATE * FRAME_S) * 2
# A pause this long is the end of an answer.
ANSWER_GAP_S = 1.5
PATIENCE_S = 35


class Call:
    def __init__(self, url, kind=AUDIO):
        address = urllib.parse.urlsplit(url)
        self.kind = kind
        self.socket = socket.create_connection((address.hostname, address.port), 2)
        self.socket.settimeout(PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(UUID, uuid.uuid4().bytes)
        self.heard = []  # (when, samples)
        self.hung_up = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def send(self, kind, content=b""):
        self.socket.sendall(struct.pack(">BH", kind, len(content)) + content)

    def read_exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                return None
            data += more
        return data

    def read(self):
        while header := self.read_exactly(3):
            kind, length = struct.unpack(">BH", header)
            if kind == HANGUP:
                break
            # Asterisk ends the call at anything else, and at audio without a sample.
            assert kind == self.kind and length > 0, (kind, length)
            self.heard.append((time.monotonic(), self.read_exactly(length)))
        self.hung_up = True

    def play(self, audio, until=None):
        """Sends this audio in real time, then silence while `until` does not hold."""
        began, number = time.monotonic(), 0
        while number * FRAME_BYTES < len(audio) or (until is not None and not until()):
            assert number * FRAME_S < PATIENCE_S, "nothing came"
            time.sleep(max(0.0, began + number * FRAME_S - time.monotonic()))
            frame = audio[number * FRAME_BYTES : (number + 1) * FRAME_BYTES]
            self.send(self.kind, frame.ljust(FRAME_BYTES, b"\0"))
            number += 1

    def has_answer(self):
        """An answer came and is over."""
        loud = [when for when, audio in list(self.heard) if max(map(abs, array.array("h", audio))) > 100]
        return bool(loud) and time.monotonic() - loud[-1] > ANSWER_GAP_S

    def seconds(self, since=0.0):
        return sum(len(audio) for when, audio in list(self.heard) if when >= since) / 2 / RATE

    def hang_up(self):
        self.send(HANGUP)
        self.reader.join(5)
        return self.hung_up


def telephone(recording):
    with wave.open(recording) as file:
        assert file.getframerate() == 2 * RATE, "16 kHz is expected"
        samples = array.array("h", file.readframes(file.getnframes()))
    return array.array("h", [(a + b) // 2 for a, b in zip(samples[::2], samples[1::2])]).tobytes()


def conversation(url, recording, heard):
    call = Call(url)
    call.play(telephone(recording), call.has_answer)
    with wave.open(heard, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(b"".join(audio for _, audio in call.heard))
    times = [when for when, _ in call.heard]
    # Asterisk queues what comes early: the pace is the sender's.
    ahead = max(number * FRAME_S - (when - times[0]) for number, when in enumerate(times))
    assert ahead < 1, f"{ahead} s ahead"
    call.send(DTMF, b"5")
    assert call.hang_up(), "no end of the call"
    return {"text": "", "user": "", "audio_s": call.seconds()}


def interruption(url, recording, text):
    call, speech = Call(url), telephone(recording)
    call.play(speech, lambda: call.seconds() > 0.5)
    before = call.seconds()
    began = time.monotonic()
    # The protocol's only sign of an interruption is that audio stops.
    call.play(speech[: 2 * RATE * 2], None)
    stopped = [when for when, _ in call.heard if when >= began]
    until = max(stopped, default=began)
    return {"audio_s": before, "stopped": time.monotonic() - until > 0.2, "late_audio_s": 0.0, "after_s": until - began}


def close(url):
    call = Call(url)
    call.play(bytes(FRAME_BYTES * 10))
    return {"code": None, "clean": call.hang_up()}


def run(cell, url, recording, heard, text):
    cells = {
        "conversation": lambda: conversation(url, recording, heard),
        "interruption": lambda: interruption(url, recording, text),
        "close": lambda: close(url),
    }
    return cells[cell]()


print(json.dumps(run(*sys.argv[1:])))
