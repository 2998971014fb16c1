"""Drives the stock Python package funasr-client, whose blocking client locks itself out at its end: CELL BASE_URL RECORDING HEARD TEXT."""

import asyncio
import json
import sys

import sound
from funasr_client import async_funasr_client

CHUNK_S = 0.06


def connect(url, got, **settings):
    return async_funasr_client(url, callback=got.append, audio_fs=16000, **settings)


def words(got, mode):
    return " ".join(message["text"] for message in got if message["mode"] == mode and message["text"])


async def transcription(url, recording):
    heard = {}
    for mode, final in [("2pass", "2pass-offline"), ("online", "online"), ("offline", "offline")]:
        got = []
        client = connect(url, got, mode=mode, wav_name=mode, hotwords={"voxbridge": 20}, itn=True)
        async with client:
            for piece in sound.pieces(recording, CHUNK_S):
                await client.send(piece)
                await asyncio.sleep(CHUNK_S)
        assert client.received_final, f"{mode}: no final message"
        assert all(message["wav_name"] == mode for message in got), got
        assert got[-1]["is_final"] is True, got
        heard[mode] = words(got, final)
        partial = "".join(message["text"] for message in got if message["mode"] == "2pass-online")
        assert mode != "2pass" or heard[mode].startswith(partial), (partial, heard[mode])
    assert len(set(heard.values())) == 1, heard
    return {"text": heard["2pass"]}


async def error(url, _):
    client = async_funasr_client(url, mode="3pass", blocking=True)
    await client.connect()
    message = await client.recv(timeout=10)
    await client.close(timeout=1)
    return {"error": message["error"]}


async def close(url, recording):
    got = []
    client = connect(url, got, mode="2pass")
    await client.connect()
    await client.send(next(sound.pieces(recording, CHUNK_S)))
    socket = client._ws
    await client.close(timeout=20)
    return {"code": socket.close_code, "clean": client.received_final}


def main():
    cell, base, recording = sys.argv[1:4]
    cells = {"transcription": transcription, "error": error, "close": close}
    print(json.dumps(asyncio.run(cells[cell](base.replace("http", "ws", 1), recording))))


if __name__ == "__main__":
    main()
