"""Transcribes a recording with public clients of the Vosk server: python3 vosk_client.py WAY WS_URL RECORDING.wav

WAY `transcriber` is the package's own transcriber, like its command line with `--server`, whose address is fixed. WAY `fast`,
`paced` and `telephone` follow the published samples. Prints the received messages as JSON. The transcriber needs ffmpeg on
$PATH.
"""

import argparse
import array
import asyncio
import json
import sys
import tempfile
import time
import wave

PATIENCE_S = 90


def transcriber(url, recording):
    import queue

    from vosk.transcriber.transcriber import Transcriber

    with tempfile.NamedTemporaryFile("r", suffix=".txt") as result:
        # Skips the constructor's model, which a client of a server never uses.
        unmodified = Transcriber.__new__(Transcriber)
        unmodified.args = argparse.Namespace(server=url, tasks=1, output_type="txt")
        unmodified.queue = queue.Queue()
        unmodified.process_task_list([(recording, result.name)])
        lines = result.read().splitlines()
    return {"texts": lines}


async def steps(url, recording, way):
    import websockets

    with wave.open(recording) as file:
        rate = file.getframerate()
        samples = array.array("h", file.readframes(file.getnframes()))
    if way == "telephone":
        samples = array.array("h", [(a + b) // 2 for a, b in zip(samples[::2], samples[1::2])])
        rate //= 2
    audio = samples.tobytes()
    texts, partials, answers, frame = [], 0, 0, rate // 5 * 2
    async with websockets.connect(url) as websocket:
        # The real server assumes 8 kHz by default.
        if rate != 8000:
            await websocket.send('{ "config" : { "sample_rate" : %d } }' % rate)
        began = time.monotonic()
        for at in range(0, len(audio), frame):
            if way == "paced":
                await asyncio.sleep(max(0.0, began + at / 2 / rate - time.monotonic()))
            await websocket.send(audio[at : at + frame])
            answer = json.loads(await websocket.recv())
            answers += 1
            partials += "partial" in answer
            texts += [answer["text"]] if "text" in answer else []
        await websocket.send('{"eof" : 1}')
        texts.append(json.loads(await websocket.recv())["text"])
        # The server ends the connection without another message.
        ended = False
        try:
            await websocket.recv()
        except websockets.exceptions.ConnectionClosedOK:
            ended = True
    frames = -(-len(audio) // frame)
    return {"texts": texts, "partials": partials, "answers": answers, "frames": frames, "ended": ended}


if __name__ == "__main__":
    way, url, recording = sys.argv[1:]
    if way == "transcriber":
        came = transcriber(url, recording)
    else:
        came = asyncio.run(asyncio.wait_for(steps(url, recording, way), PATIENCE_S))
    print(json.dumps(came))
