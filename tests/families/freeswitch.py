"""A call over FreeSWITCH's mod_audio_stream; see phone_call.py. The messages are those of its README and source."""

import json

from phone_call import Provider, run


class FreeSwitch(Provider):
    path = "/freeswitch?rate=16000&playback_rate=16000"
    rate = 16000
    encoding = "s16le"
    returns_marks = False

    def first_messages(self, parameters):
        return [json.dumps({"type": "start", **parameters})]

    def broken_start(self):
        return json.dumps({"type": "start", "microphone": "sometimes"})

    def read(self, message):
        if isinstance(message, bytes):
            assert len(message) % 2 == 0, "samples of two bytes"
            return "audio", message
        message = json.loads(message)
        assert message == {"type": "killAudio"}, message
        # The module plays what it has: at most 200 ms.
        return "stop", None

    def dtmf(self):
        return json.dumps({"type": "dtmf", "digit": "5"})


run(FreeSwitch())
