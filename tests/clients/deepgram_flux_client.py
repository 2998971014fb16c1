"""Takes turns with Flux by Deepgram's public Python library (version 7): python3 deepgram_flux_client.py CODE RECORDING.wav [eager]

The code makes the client. Prints what came for three turns as JSON: one that ends by itself, one that the client ends after it has
changed the thresholds (with `eager`, once its end is likely), and one that ends with the stream.
"""

import json
import queue
import sys
import threading
import time
import wave

from readme_code import evaluate

PATIENCE_S = 40
RATE = 16000
CLOSED = {"type": "closed"}


class Client:
    def __init__(self, code):
        from deepgram import DeepgramClient
        from deepgram.core.events import EventType
        from deepgram.environment import DeepgramClientEnvironment

        client = evaluate(code, DeepgramClient=DeepgramClient, DeepgramClientEnvironment=DeepgramClientEnvironment)
        self.came = queue.Queue()
        self.context = client.listen.v2.connect(
            model="flux-general-en",
            encoding="linear16",
            sample_rate=RATE,
            eot_threshold=0.7,
            eager_eot_threshold=0.4,
            eot_timeout_ms=3000,
            keyterm=["Macaw"],
        )
        self.wire = self.context.__enter__()
        self.wire.on(EventType.MESSAGE, lambda message: self.came.put(json.loads(message.json())))
        self.wire.on(EventType.ERROR, lambda error: self.came.put({"type": "Error", "description": str(error)}))
        self.wire.on(EventType.CLOSE, lambda _: self.came.put(CLOSED))
        self.listening = threading.Thread(target=self.wire.start_listening, daemon=True)
        self.listening.start()

    def until(self, so):
        """Waits for the first message that matches; returns all messages up to it."""
        seen = []
        while not seen or not so(seen[-1]):
            seen.append(self.came.get(timeout=PATIENCE_S))
            assert seen[-1]["type"] not in ("Error", "Warning", "ConfigureFailure"), seen
        return seen

    def say(self, audio):
        began = time.monotonic()
        for at in range(0, len(audio), 640):
            time.sleep(max(0.0, began + at / 2 / RATE - time.monotonic()))
            self.wire.send_media(audio[at : at + 640])

    def done(self):
        self.listening.join()
        self.context.__exit__(None, None, None)


def ended(message):
    return message.get("event") == "EndOfTurn"


def run(code, audio, waits):
    from deepgram.listen.v2.types import ListenV2Configure, ListenV2ConfigureThresholds

    client = Client(code)
    connected = client.until(lambda message: message["type"] == "Connected")
    client.say(audio + bytes(RATE * 8))
    first = client.until(ended)
    thresholds = ListenV2ConfigureThresholds(eot_threshold=1.0, eot_timeout_ms=30000)
    client.wire.send_configure(ListenV2Configure(thresholds=thresholds))
    configured = client.until(lambda message: message["type"] == "ConfigureSuccess")
    client.say(audio + bytes(RATE * 2))
    second = client.until(lambda message: message.get("event") == "EagerEndOfTurn") if waits else []
    client.wire.send_force_end_turn()
    second += client.until(ended)
    client.say(audio)
    client.wire.send_close_stream()
    last = client.until(lambda message: message is CLOSED)
    client.done()
    return {"connected": connected, "first": first, "configured": configured[-1], "second": second, "last": last}


if __name__ == "__main__":
    code, recording, *waits = sys.argv[1:]
    with wave.open(recording) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        audio = file.readframes(file.getnframes())
    print(json.dumps(run(code, audio, waits)))
