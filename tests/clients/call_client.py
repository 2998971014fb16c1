"""One call with aiortc, a second WebRTC stack: python3 call_client.py SERVER RECORDING.wav MIME_TYPE

Offers only the codec MIME_TYPE, asks the recording's question, hears the answer to its end, and hangs up. Prints what it saw as
JSON.
"""

import asyncio
import fractions
import json
import sys
import time
import urllib.request
import wave

from aiortc import MediaStreamTrack, RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

RATE = 16000
FRAME = RATE // 50
PATIENCE_S = 60
LOUD = 1000


class Microphone(MediaStreamTrack):
    """Silence, until something is said."""

    kind = "audio"

    def __init__(self):
        super().__init__()
        self.samples, self.at, self.began = b"", 0, None

    async def recv(self):
        self.began = self.began or time.monotonic()
        await asyncio.sleep(self.began + self.at / RATE - time.monotonic())
        taken, self.samples = self.samples[: 2 * FRAME], self.samples[2 * FRAME :]
        frame = AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(taken.ljust(2 * FRAME, b"\0"))
        frame.sample_rate, frame.pts, frame.time_base = RATE, self.at, fractions.Fraction(1, RATE)
        self.at += FRAME
        return frame


def request(url, body=b"", content_type="application/sdp"):
    made = urllib.request.Request(url, body, {"Content-Type": content_type}, method="POST")
    with urllib.request.urlopen(made, timeout=PATIENCE_S) as answer:
        return answer.status, answer.headers["Location"], answer.read().decode()


async def main(server, recording, mime_type):
    report = {"events": [], "user": None, "heard_s": 0.0}
    changed, microphone, peer = asyncio.Event(), Microphone(), RTCPeerConnection()
    transceiver = peer.addTransceiver(microphone)
    codecs = [codec for codec in RTCRtpSender.getCapabilities("audio").codecs if codec.mimeType.lower() == mime_type.lower()]
    transceiver.setCodecPreferences(codecs)
    channel = peer.createDataChannel("oai-events")

    async def wait_for(kind):
        while kind not in report["events"]:
            changed.clear()
            await asyncio.wait_for(changed.wait(), PATIENCE_S)

    @channel.on("message")
    def on_message(message):
        event = json.loads(message)
        report["events"].append(event["type"])
        if event["type"].endswith("input_audio_transcription.completed"):
            report["user"] = event["transcript"]
        changed.set()

    @channel.on("close")
    def on_close():
        report["events"].append("closed")
        changed.set()

    async def listen(track):
        try:
            while True:
                frame = await track.recv()
                samples = memoryview(bytes(frame.planes[0])).cast("h")
                if max(map(abs, samples)) > LOUD:
                    report["heard_s"] += frame.samples / frame.sample_rate
        except MediaStreamError:
            pass

    listening = []
    peer.on("track", lambda track: listening.append(asyncio.ensure_future(listen(track))))
    began = time.monotonic()
    await peer.setLocalDescription(await peer.createOffer())
    url = f"{server}/v1/realtime/calls?model=gpt-realtime"
    _, location, answer = await asyncio.to_thread(request, url, peer.localDescription.sdp.encode())
    await peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    await wait_for("session.created")
    report["connected_s"] = round(time.monotonic() - began, 3)
    session = {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}
    channel.send(json.dumps({"type": "session.update", "session": session}))
    await wait_for("session.updated")
    with wave.open(recording) as file:
        microphone.samples = file.readframes(file.getnframes())
    # The transcript is made beside the answer, and may come after it.
    for kind in ["conversation.item.input_audio_transcription.completed", "response.done", "output_audio_buffer.stopped"]:
        await wait_for(kind)
    await asyncio.to_thread(request, f"{server}{location}/hangup")
    await wait_for("closed")
    await peer.close()
    await asyncio.gather(*listening)
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
