"""Sends recordings like sherpa-onnx's example offline-websocket-client-decode-files-sequential.py, which is no package: CELL BASE_URL RECORDING
HEARD TEXT.
"""

import array
import asyncio
import json
import sys
import wave

import websockets

PIECE_BYTES = 10240


def payload(recording):
    with wave.open(recording, "rb") as audio:
        rate = audio.getframerate()
        samples = array.array("h", audio.readframes(audio.getnframes()))
    floats = array.array("f", (sample / 32768 for sample in samples)).tobytes()
    return rate.to_bytes(4, "little") + len(floats).to_bytes(4, "little") + floats


async def decode(socket, data):
    for at in range(0, len(data), PIECE_BYTES):
        await socket.send(data[at : at + PIECE_BYTES])
    return json.loads(await asyncio.wait_for(socket.recv(), 30))["text"]


async def transcription(url, recording):
    async with websockets.connect(url) as socket:
        texts = [await decode(socket, payload(recording)) for _ in range(2)]
        await socket.send("Done")
    assert all(texts), texts
    return {"text": texts[0]}


async def error(url, _):
    async with websockets.connect(url) as socket:
        await socket.send((16000).to_bytes(4, "little") + (2**32 - 4).to_bytes(4, "little"))
        try:
            await socket.recv()
        except websockets.ConnectionClosed as closed:
            return {"error": f"{closed.rcvd.code} {closed.rcvd.reason}"}


async def close(url, recording):
    async with websockets.connect(url) as socket:
        await decode(socket, payload(recording))
        await socket.send("Done")
        await socket.wait_closed()
        return {"code": socket.close_code, "clean": socket.close_code == 1000}


def main():
    cell, base, recording = sys.argv[1:4]
    cells = {"transcription": transcription, "error": error, "close": close}
    print(json.dumps(asyncio.run(cells[cell](base.replace("http", "ws", 1), recording))))


if __name__ == "__main__":
    main()
