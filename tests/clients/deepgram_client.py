"""Transcribes and speaks with Deepgram's public Python library: python3 deepgram_client.py CODE RECORDING.wav

The code makes the client. Uses the version on $PYTHONPATH: versions 3 and 4, version 5, and later ones, whose interfaces differ. Prints
the received events as JSON.
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
LISTEN = {
    "model": "nova-3",
    "encoding": "linear16",
    "sample_rate": RATE,
    "interim_results": "true",
    "vad_events": "true",
    "utterance_end_ms": 1000,
    "endpointing": 300,
}
SPEAK = {"model": "aura-2-thalia-en", "encoding": "linear16", "sample_rate": RATE}
TEXTS = [["The train to London ", "leaves at half past nine."], ["She opened the window and looked out over the garden."]]
LONG = "This sentence is not spoken to its end, and neither are those after it. " * 8
CLOSED = {"type": "closed"}


class Version3:
    """Versions 3 and 4: one callback per event, in threads of the library."""

    def __init__(self, code):
        import deepgram

        self.library = deepgram
        self.client = evaluate(code, **vars(deepgram))
        self.came = queue.Queue()

    def listen(self):
        events = self.library.LiveTranscriptionEvents
        self.wire = self.client.listen.websocket.v("1")
        wanted = (events.Transcript, events.Metadata, events.SpeechStarted, events.UtteranceEnd, events.Error, events.Unhandled)
        self.open(events, wanted, LISTEN)

    def speak(self):
        events = self.library.SpeakWebSocketEvents
        self.wire = self.client.speak.websocket.v("1")
        self.wire.on(events.AudioData, lambda _, data, **__: self.came.put(data))
        wanted = (events.Metadata, events.Flushed, events.Cleared, events.Warning, events.Error, events.Unhandled)
        self.open(events, wanted, SPEAK)

    def open(self, events, wanted, query):
        def told(_, *positional, **named):
            [event] = [*positional, *named.values()]
            self.came.put(json.loads(event.to_json()))

        for event in wanted:
            self.wire.on(event, told)
        self.wire.on(events.Close, lambda *_, **__: self.came.put(CLOSED))
        assert self.wire.start(query), "it does not connect"

    def send(self, audio):
        assert self.wire.send(audio)

    def keep_alive(self):
        assert self.wire.keep_alive()

    def finalize(self):
        assert self.wire.finalize()

    def close(self):
        # `finish` waits for only half a second; a program that needs all results requests them first.
        self.wire.send_raw(json.dumps({"type": "Close"})) if hasattr(self.wire, "send_raw") else self.wire.send(
            json.dumps({"type": "CloseStream"})
        )

    def text(self, text):
        assert self.wire.send_text(text)

    def flush(self):
        assert self.wire.flush()

    def clear(self):
        assert self.wire.clear()

    def done(self):
        self.wire.finish()


class Version6:
    """Version 6 and later: one callback for all messages."""

    def __init__(self, code):
        from deepgram import DeepgramClient
        from deepgram.environment import DeepgramClientEnvironment

        self.client = evaluate(code, DeepgramClient=DeepgramClient, DeepgramClientEnvironment=DeepgramClientEnvironment)
        self.came = queue.Queue()

    def listen(self):
        self.open(self.client.listen.v1.connect(**LISTEN))

    def speak(self):
        self.open(self.client.speak.v1.connect(**SPEAK))

    def open(self, connecting):
        from deepgram.core.events import EventType

        def told(message):
            self.came.put(message if isinstance(message, bytes) else json.loads(message.json()))

        self.context = connecting
        self.wire = self.context.__enter__()
        self.wire.on(EventType.MESSAGE, told)
        self.wire.on(EventType.ERROR, lambda error: self.came.put({"type": "Error", "description": str(error)}))
        self.wire.on(EventType.CLOSE, lambda _: self.came.put(CLOSED))
        self.listening = threading.Thread(target=self.wire.start_listening, daemon=True)
        self.listening.start()
        self.is_speech = hasattr(self.wire, "send_text")

    def send(self, audio):
        self.wire.send_media(audio)

    def keep_alive(self):
        self.wire.send_keep_alive()

    def finalize(self):
        self.wire.send_finalize()

    def close(self):
        self.wire.send_close() if self.is_speech else self.wire.send_close_stream()

    def text(self, text):
        from deepgram.speak.v1.types import SpeakV1Text

        self.wire.send_text(SpeakV1Text(type="Speak", text=text))

    def flush(self):
        self.wire.send_flush()

    def clear(self):
        self.wire.send_clear()

    def done(self):
        self.listening.join()
        self.context.__exit__(None, None, None)


class Version5(Version6):
    """Version 5: control messages have one method."""

    def control(self, kind):
        from deepgram.extensions.types.sockets import ListenV1ControlMessage, SpeakV1ControlMessage

        message = SpeakV1ControlMessage if self.is_speech else ListenV1ControlMessage
        self.wire.send_control(message(type=kind))

    def keep_alive(self):
        self.control("KeepAlive")

    def finalize(self):
        self.control("Finalize")

    def close(self):
        self.control("Close" if self.is_speech else "CloseStream")

    def text(self, text):
        from deepgram.extensions.types.sockets import SpeakV1TextMessage

        self.wire.send_text(SpeakV1TextMessage(type="Speak", text=text))

    def flush(self):
        self.control("Flush")

    def clear(self):
        self.control("Clear")


class Client:
    def __init__(self, library):
        self.library = library
        self.kinds = []

    def next(self):
        came = self.library.came.get(timeout=PATIENCE_S)
        kind = "audio" if isinstance(came, bytes) else came["type"]
        assert kind not in ("Error", "Unhandled", "Warning"), came
        self.kinds.append(kind)
        return came

    def until(self, so):
        """Waits for the first item that matches; returns all items up to it."""
        seen = []
        while not seen or not so(seen[-1]):
            seen.append(self.next())
        return seen

    def listen(self, audio, spoken):
        library = self.library
        library.listen()
        began = time.monotonic()
        paced = audio + bytes(RATE * 4)
        for at in range(0, len(paced), 640):
            time.sleep(max(0.0, began + at / 2 / RATE - time.monotonic()))
            library.send(paced[at : at + 640])
        live = self.until(lambda came: came["type"] == "UtteranceEnd")
        library.keep_alive()
        # Silence does not end this stream.
        library.send(audio)
        library.finalize()
        finalized = self.until(lambda came: came.get("from_finalize"))
        for piece in spoken:
            library.send(piece + bytes(RATE * 2))
        library.close()
        last = self.until(lambda came: came is CLOSED)
        library.done()
        return {
            "live": {
                "kinds": kinds(live),
                "text": said(live),
                "speech_final": finals(live)[-1]["speech_final"],
                "interim": sum(came["type"] == "Results" and not came["is_final"] for came in live),
            },
            "finalized": said(finalized),
            "spoken": [came["channel"]["alternatives"][0]["transcript"] for came in finals(last)],
            "last": [came for came in last if came["type"] != "Results"],
        }

    def speak(self):
        library = self.library
        library.speak()
        metadata = self.next()
        assert metadata["type"] == "Metadata" and metadata["request_id"], metadata
        for pieces in TEXTS:
            for piece in pieces:
                library.text(piece)
            library.flush()
        spoken = []
        for number in range(len(TEXTS)):
            *audio, flushed = self.until(lambda came: not isinstance(came, bytes))
            assert (flushed["type"], flushed["sequence_id"]) == ("Flushed", number), flushed
            spoken.append(b"".join(audio))
        library.text(LONG)
        library.flush()
        self.until(lambda came: isinstance(came, bytes))
        library.clear()
        *_, cleared = self.until(lambda came: not isinstance(came, bytes))
        assert cleared["type"] == "Cleared" and cleared["sequence_id"] == 0, cleared
        library.text("Yes.")
        library.close()
        rest = self.until(lambda came: came is CLOSED)
        assert len(rest) > 1 and all(isinstance(came, bytes) for came in rest[:-1]), self.kinds
        library.done()
        return spoken


def kinds(came):
    return list(dict.fromkeys(event["type"] for event in came))


def finals(came):
    return [event for event in came if event["type"] == "Results" and event["is_final"]]


def said(came):
    return " ".join(event["channel"]["alternatives"][0]["transcript"] for event in finals(came)).strip()


if __name__ == "__main__":
    from importlib.metadata import version

    code, recording = sys.argv[1:]
    library = {"3": Version3, "4": Version3, "5": Version5}.get(version("deepgram-sdk")[0], Version6)
    with wave.open(recording) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        audio = file.readframes(file.getnframes())
    spoken = Client(library(code)).speak()
    print(json.dumps(Client(library(code)).listen(audio, spoken)))
