"""A call over Vonage's Voice API; see phone_call.py. Vonage's messages are those of its page on WebSockets."""

import json

from phone_call import Provider, run, set_up


class Vonage(Provider):
    path = "/vonage"
    rate = 16000
    encoding = "s16le"

    async def prepare(self):
        from pipecat.serializers.vonage import VonageFrameSerializer

        self.serializer = await set_up(VonageFrameSerializer())

    def first_messages(self, parameters):
        connected = {"event": "websocket:connected", "content-type": f"audio/l16;rate={self.rate}", **parameters}
        return [json.dumps(connected)]

    def broken_start(self):
        return json.dumps({"event": "websocket:connected", "content-type": "audio/opus"})

    def read(self, message):
        if isinstance(message, bytes):
            assert len(message) == self.rate // 50 * 2, "Vonage takes 20 ms"
            return "audio", message
        message = json.loads(message)
        match message["action"]:
            case "notify":
                assert message.keys() == {"action", "payload"}, message
                return "mark", message["payload"]
            case "clear":
                return "clear", None
        raise AssertionError(f"Vonage knows no {message}")

    def mark(self, name, cleared):
        return json.dumps({"event": "websocket:cleared"} if cleared else {"event": "websocket:notify", "payload": name})

    def dtmf(self):
        return json.dumps({"event": "websocket:dtmf", "digit": "5", "duration": 260})


run(Vonage())
