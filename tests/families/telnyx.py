"""A call over Telnyx media streaming; see phone_call.py. Telnyx's messages are those of its page "Stream call media over WebSocket"."""

import base64
import json

from phone_call import Provider, run, set_up

STREAM = "32DE0DEA-53CB-4B21-89A4-9E1819C043BC"


class Telnyx(Provider):
    path = "/telnyx"

    def __init__(self):
        super().__init__()
        self.sequence = 0

    async def prepare(self):
        from pipecat.serializers.telnyx import TelnyxFrameSerializer

        params = TelnyxFrameSerializer.InputParams(auto_hang_up=False)
        self.serializer = await set_up(TelnyxFrameSerializer(STREAM, "PCMU", "PCMU", params=params))

    def message(self, event, **members):
        self.sequence += 1
        return json.dumps({"event": event, "sequence_number": str(self.sequence), "stream_id": STREAM, **members})

    def start(self, encoding, parameters):
        form = {"encoding": encoding, "sample_rate": 8000, "channels": 1}
        call = {"user_id": "3E6F995F", "call_control_id": "v2:T02", "call_session_id": "ff55a038", "from": "+13122010094"}
        call |= {"to": "+13122123456", "tags": ["TAG1"], "client_state": "aGF2ZSBhIG5pY2UgZGF5ID1d"}
        return self.message("start", start={**call, "custom_parameters": parameters, "media_format": form})

    def first_messages(self, parameters):
        return [json.dumps({"event": "connected", "version": "1.0.0"}), self.start("PCMU", parameters)]

    def broken_start(self):
        return self.start("G729", {})

    def media(self, audio):
        payload = base64.b64encode(audio).decode()
        return self.message("media", media={"track": "inbound", "chunk": "1", "timestamp": "5", "payload": payload})

    def read(self, text):
        message = json.loads(text)
        match message["event"]:
            case "media":
                audio = base64.b64decode(message["media"]["payload"], validate=True)
                assert len(audio) >= 160, "Telnyx takes 20 ms or more"
                return "audio", audio
            case "mark":
                assert message.keys() == {"event", "mark"} and isinstance(message["mark"]["name"], str), message
                return "mark", message["mark"]["name"]
            case "clear":
                return "clear", None
        raise AssertionError(f"Telnyx knows no {text}")

    def mark(self, name, cleared):
        return self.message("mark", mark={"name": name})

    def dtmf(self):
        return self.message("dtmf", occurred_at="2026-11-22T15:42:15.8Z", dtmf={"digit": "1"})

    def last_message(self):
        return self.message("stop", stop={"user_id": "3E6F995F", "call_control_id": "v2:T02"})


run(Telnyx())
