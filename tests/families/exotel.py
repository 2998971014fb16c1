"""A call over Exotel's Voicebot applet; see phone_call.py. Exotel's messages are those of its page "WebSocket protocol"."""

import base64
import json

from phone_call import Provider, run, set_up

STREAM = "MZ00000000000000000000000000000001"


class Exotel(Provider):
    path = "/exotel"
    encoding = "s16le"

    def __init__(self):
        super().__init__()
        self.sequence = 0

    async def prepare(self):
        from pipecat.serializers.exotel import ExotelFrameSerializer

        self.serializer = await set_up(ExotelFrameSerializer(STREAM))

    def message(self, event, **members):
        self.sequence += 1
        return json.dumps({"event": event, "sequence_number": str(self.sequence), "stream_sid": STREAM, **members})

    def start(self, encoding, parameters):
        form = {"encoding": encoding, "sample_rate": "8000", "bit_rate": "16"}
        call = {"stream_sid": STREAM, "call_sid": "CA1", "account_sid": "AC1", "from": "+919876543210", "to": "+918047491899"}
        return self.message("start", start={**call, "custom_parameters": parameters, "media_format": form})

    def first_messages(self, parameters):
        return [json.dumps({"event": "connected"}), self.start("audio/x-raw", parameters)]

    def broken_start(self):
        return self.start("audio/amr", {})

    def media(self, audio):
        payload = base64.b64encode(audio).decode()
        return self.message("media", media={"chunk": "2", "timestamp": "200", "payload": payload})

    def read(self, text):
        message = json.loads(text)
        assert message["stream_sid"] == STREAM, message
        match message["event"]:
            case "media":
                audio = base64.b64decode(message["media"]["payload"], validate=True)
                assert 3200 <= len(audio) <= 100_000 and len(audio) % 320 == 0, len(audio)
                return "audio", audio
            case "mark":
                assert isinstance(message["mark"]["name"], str), message
                return "mark", message["mark"]["name"]
            case "clear":
                return "clear", None
        raise AssertionError(f"Exotel knows no {text}")

    def mark(self, name, cleared):
        return self.message("mark", mark={"name": name})

    def dtmf(self):
        return self.message("dtmf", dtmf={"digit": "5", "duration": "100"})

    def last_message(self):
        return self.message("stop", stop={"call_sid": "CA1", "account_sid": "AC1", "reason": "callended"})


run(Exotel())
