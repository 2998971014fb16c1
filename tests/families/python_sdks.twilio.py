"""streamdouble, unmodified, which stands in for Twilio in calls and checks each message by Twilio's documentation:
python_sdks.twilio.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: conversation, interruption, close.
"""

import asyncio
import json
import sys
from pathlib import Path

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
from streamdouble import audio
from streamdouble.api import run_scenario, save_reply
from streamdouble.scenario import Hangup, Say, Scenario, Wait, WaitFor
from streamdouble.session import SessionConfig

PATIENCE_S = 30
cell, base_url, recording, heard = sys.argv[1:5]
url = base_url.replace("http", "ws", 1) + "/twilio"
QUESTION = Say(Path(recording), audio.wav_to_ulaw_frames(recording))
ANSWER = WaitFor("audio", PATIENCE_S)
STEPS = {
    "conversation": [QUESTION, ANSWER, WaitFor("quiet", PATIENCE_S), Hangup()],
    "interruption": [QUESTION, ANSWER, Wait(0.3), QUESTION, WaitFor("clear", 1), Hangup()],
    "close": [Wait(1), Hangup()],
}


def call():
    config = SessionConfig(response_timeout_s=PATIENCE_S, custom_parameters={"language": "en"})
    report = asyncio.run(run_scenario(url, Scenario(cell, STEPS[cell]), config=config))
    result = report.result
    assert not result.violations and not result.unknown_events, (result.violations, result.unknown_events)
    save_reply(report, heard)
    return result


def interruption(result):
    (clear,) = result.events_of("clear_received")
    pieces = result.events_of("media_received")
    before = [event for event in pieces if event.at <= clear.at]
    late = [event for event in pieces if event.at > clear.at]
    seconds = lambda events: sum(event.detail["bytes"] for event in events) / 8000
    return {"audio_s": seconds(before), "stopped": True, "late_audio_s": seconds(late)}


result = call()
if cell == "interruption":
    came = interruption(result)
elif cell == "conversation":
    came = {"audio_s": len(result.audio_received) / 8000, "marks": len(result.marks_echoed)}
else:
    came = {"clean": result.closed_by != "agent" and not result.closed_early, "closed_by": result.closed_by}
print(json.dumps(came))
