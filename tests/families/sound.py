"""Sound of the clients that the scripts here drive: recordings in pieces, and files with what came."""

import time
import wave


def pieces(recording, piece_s):
    """The samples of a recording in pieces of this length."""
    with wave.open(recording) as file:
        while piece := file.readframes(int(file.getframerate() * piece_s)):
            yield piece


def spoken(recording, piece_s=0.05):
    """The same as fast as speech: each piece, and then the time that it lasts."""
    for piece in pieces(recording, piece_s):
        yield piece
        time.sleep(piece_s)


def read(recording, rate_hz):
    """All samples of a recording of one channel, which has this rate."""
    with wave.open(recording) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (rate_hz, 1, 2)
        return file.readframes(file.getnframes())


def write(path, audio, rate_hz):
    """Writes samples of one channel to a file."""
    with wave.open(path, "wb") as file:
        file.setparams((1, 2, rate_hz, 0, "NONE", ""))
        file.writeframes(audio)


def seconds(audio, rate_hz):
    return round(len(audio) / 2 / rate_hz, 3)


def wait_until(holds, patience_s=10):
    """True as soon as `holds()` is, False after this time."""
    until = time.monotonic() + patience_s
    while not holds() and time.monotonic() < until:
        time.sleep(0.1)
    return bool(holds())
