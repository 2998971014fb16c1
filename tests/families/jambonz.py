"""A call over jambonz's verb `listen` with bidirectional streaming; see phone_call.py. The messages are those of jambonz-feature-server
0.9.8, and the playback is that of its FreeSWITCH module: it keeps back the last samples below its threshold, and returns a mark when
its buffer is empty."""

import json

from phone_call import Provider, run


class Jambonz(Provider):
    path = "/jambonz"
    rate = 16000
    encoding = "s16le"
    subprotocols = ["audio.drachtio.org"]

    def first_messages(self, parameters):
        call = {"callSid": "c1", "direction": "inbound", "from": "16173333456", "to": "15083084809", "callId": "i1", "sipStatus": 200}
        return [json.dumps({"sampleRate": self.rate, "mixType": "mono", **call, **parameters})]

    def broken_start(self):
        return json.dumps({"sampleRate": "very high", "mixType": "mono", "callSid": "c1"})

    def read(self, message):
        if isinstance(message, bytes):
            assert len(message) >= 2560, "the module would keep back the end"
            return "audio", message
        message = json.loads(message)
        match message["type"]:
            case "mark":
                assert message["data"].keys() == {"name"} and isinstance(message["data"]["name"], str), message
                return "mark", message["data"]["name"]
            case "killAudio":
                return "clear", None
            case "disconnect":
                return "nothing", None
        raise AssertionError(f"jambonz knows no {message}")

    def mark(self, name, cleared):
        return json.dumps({"type": "mark", "data": {"name": name, "event": "cleared" if cleared else "playout"}})

    def dtmf(self):
        return json.dumps({"event": "dtmf", "dtmf": "5", "duration": "1600"})


run(Jambonz())
