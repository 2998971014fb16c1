"""A call over Plivo's audio streaming; see phone_call.py. Plivo's messages are those of its pages and of plivo-stream-sdk."""

import base64
import json

from phone_call import Provider, run, set_up

STREAM = "20170ada-f610-433b-8758-c02a2aab3662"


class Plivo(Provider):
    path = "/plivo?language=en"

    def __init__(self):
        super().__init__()
        self.sequence = 0

    async def prepare(self):
        from pipecat.serializers.plivo import PlivoFrameSerializer

        params = PlivoFrameSerializer.InputParams(auto_hang_up=False)
        self.serializer = await set_up(PlivoFrameSerializer(STREAM, params=params))

    def message(self, event, **members):
        self.sequence += 1
        return json.dumps({"sequenceNumber": self.sequence, "event": event, "extra_headers": "{}", **members})

    def start(self, encoding):
        form = {"encoding": encoding, "sampleRate": 8000}
        start = {"callId": "c1", "streamId": STREAM, "accountId": "MA1", "tracks": ["inbound"], "mediaFormat": form}
        return self.message("start", start=start)

    def first_messages(self, parameters):
        return [self.start("audio/x-mulaw")]

    def broken_start(self):
        return self.start("audio/x-opus")

    def media(self, audio):
        payload = base64.b64encode(audio).decode()
        return self.message("media", streamId=STREAM, media={"track": "inbound", "timestamp": "20", "chunk": 1, "payload": payload})

    def read(self, text):
        message = json.loads(text)
        assert message["streamId"] == STREAM, message
        match message["event"]:
            case "playAudio":
                media = message["media"]
                assert (media["contentType"], media["sampleRate"]) == ("audio/x-mulaw", 8000), media
                return "audio", base64.b64decode(media["payload"], validate=True)
            case "checkpoint":
                assert message.keys() == {"event", "streamId", "name"} and isinstance(message["name"], str), message
                return "mark", message["name"]
            case "clearAudio":
                return "clear", None
        raise AssertionError(f"Plivo knows no {text}")

    def mark(self, name, cleared):
        return None if cleared else self.message("playedStream", streamId=STREAM, name=name)

    def dtmf(self):
        return self.message("dtmf", streamId=STREAM, dtmf={"track": "inbound", "digit": "1", "timestamp": "20"})

    def last_message(self):
        return self.message("stop", streamId=STREAM)


run(Plivo())
