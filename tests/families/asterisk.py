"""A call through a real Asterisk, whose channel chan_websocket dials voxbridge; see phone_call.py. The caller is a second WebSocket
channel of the same Asterisk, so that no telephone is needed. Asterisk is in target/families/asterisk, unpacked by
tests/families/asterisk.setup, and runs from there without being installed. `asterisk.py` takes the control messages in
JSON; `asterisk_text.py` those in plain text."""

import asyncio
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import urllib.parse

import phone_call
from phone_call import RATE, Provider, audioop, read_wav, seconds, write_wav
from websockets.asyncio.server import serve

ROOT = pathlib.Path(os.environ.get("ASTERISK", phone_call.CLIENTS.parent / "families" / "asterisk"))
LIBRARIES = ROOT / "usr/lib/x86_64-linux-gnu"
MODULES = """pbx_config app_dial res_timing_timerfd codec_ulaw codec_alaw codec_resample res_http_websocket res_websocket_client
    chan_websocket bridge_simple bridge_softmix bridge_builtin_features func_channel res_clioriginate res_sorcery_config
    res_sorcery_memory res_sorcery_astdb codec_g722""".split()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def configure(directory, url, caller_port, dial, say):
    """Writes Asterisk's configuration; returns the path of its main file."""
    places = dict(etc="etc", varlib="var", db="var", key="var", agi="var", spool="var", run="var", log="log")
    for place in places.values():
        (directory / place).mkdir(exist_ok=True)
    lines = [f"ast{name}dir => {directory / place}" for name, place in places.items()]
    lines += [f"astmoddir => {LIBRARIES}/asterisk/modules", f"astdatadir => {ROOT}/usr/share/asterisk"]
    clients = {"voxbridge": url, "caller": f"ws://127.0.0.1:{caller_port}/"}
    sockets = [
        f"[{name}]\ntype = websocket_client\nuri = {uri}\nprotocols = media\nconnection_type = per_call_config\n"
        "connection_timeout = 5000\nreconnect_interval = 500\nreconnect_attempts = 2\ntls_enabled = no\n"
        for name, uri in clients.items()
    ]
    files = {
        "asterisk.conf": "[directories]\n" + "\n".join(lines) + "\n[options]\nnocolor = yes\nverbose = 3\n",
        "modules.conf": "[modules]\nautoload = no\n" + "".join(f"load = {name}.so\n" for name in MODULES),
        "websocket_client.conf": "\n".join(sockets),
        "extensions.conf": f"[default]\nexten => bot,1,Set(_say={say})\n same => n,Dial({dial})\n same => n,Hangup()\n",
        "http.conf": "[general]\nenabled = no\n",
        "logger.conf": "[general]\n[logfiles]\nconsole => notice,warning,error,verbose,debug\n",
    }
    for name, text in files.items():
        (directory / "etc" / name).write_text(text)
    return directory / "etc/asterisk.conf"


def asterisk(config, *arguments):
    loader = ROOT / "usr/lib64/ld-linux-x86-64.so.2"
    command = [loader, "--library-path", f"{LIBRARIES}:{ROOT}/usr/lib", ROOT / "usr/sbin/asterisk", "-C", config]
    return [str(part) for part in [*command, *arguments]]


class Caller(Provider):
    """The far end: a WebSocket channel that carries the caller's voice at 16 kHz, with control messages in JSON."""

    rate = RATE
    encoding = "s16le"
    returns_marks = False

    def read(self, message):
        return ("audio", message) if isinstance(message, bytes) else ("nothing", None)


class Phone(phone_call.Call):
    """Asterisk has the clock: what comes from it is heard at once. It sends nothing while voxbridge does not speak."""

    quiet_since = 0.0

    async def play(self):
        pass

    async def listen(self):
        async for message in self.socket:
            if isinstance(message, bytes) and audioop.rms(message, 2) > 30:
                self.heard += message
                self.quiet_since = asyncio.get_running_loop().time()

    def is_quiet_for(self, time_s):
        return asyncio.get_running_loop().time() - self.quiet_since > time_s


async def hear(phone, condition):
    for _ in range(phone_call.PATIENCE_S * 50):
        await phone.say(bytes(640))
        if condition():
            return
    raise AssertionError("the caller waits in vain")


async def talk(phone, cell, recording):
    if cell in ("conversation", "interruption"):
        await phone.say(bytes(RATE * 2))
        await phone.say(recording)
    if cell == "close":
        await phone.say(bytes(RATE * 2))
        return {}
    if cell == "error":
        await phone.socket.wait_closed()
        return {}
    await hear(phone, lambda: phone.heard)
    if cell in ("conversation", "speech"):
        await hear(phone, lambda: phone.is_quiet_for(1.5))
        return {"audio_s": seconds(phone.heard)}
    await phone.say(bytes(RATE))
    stopped_after = 0
    for at in range(0, len(recording), 640):
        if not phone.is_quiet_for(0.3):
            stopped_after = at
        await phone.say(recording[at : at + 640])
    # The recording begins with half a second of silence, and speech is certain after another. The user was still speaking at the
    # end, so that nothing of the next answer can have come.
    late = max(0.0, stopped_after / 2 / RATE - 1.5)
    return {"audio_s": seconds(phone.heard), "stopped": phone.is_quiet_for(0.3), "late_audio_s": late}


async def main(dial, path, cell, base, recording, heard, text):
    query = "?" + urllib.parse.urlencode({"language": "en"})
    if cell == "error":
        dial = dial.replace("slin16", "g722")
    url = base.replace("http", "ws", 1).rstrip("/") + path + query
    connected = asyncio.get_running_loop().create_future()

    async def take(connection):
        connected.set_result(connection)
        await connection.wait_closed()

    with tempfile.TemporaryDirectory(prefix="asterisk-") as directory:
        async with serve(take, "127.0.0.1", free_port(), subprotocols=["media"]) as server:
            port = server.sockets[0].getsockname()[1]
            config = configure(pathlib.Path(directory), url, port, dial, text if cell == "speech" else "")
            with open(f"{directory}/console", "w+") as console:
                process = subprocess.Popen(asterisk(config, "-f", "-vvv"), stdout=console, stderr=console)
                try:
                    for _ in range(100):
                        started = subprocess.run(asterisk(config, "-rx", "core waitfullybooted"), capture_output=True)
                        if started.returncode == 0:
                            break
                        await asyncio.sleep(0.1)
                    level = "core set debug 4 chan_websocket"
                    subprocess.run(asterisk(config, "-rx", level), check=True, capture_output=True)
                    originate = "channel originate WebSocket/caller/c(slin16)f(json) extension bot@default"
                    subprocess.run(asterisk(config, "-rx", originate), check=True, capture_output=True)
                    socket_of_caller = await asyncio.wait_for(connected, 10)
                    phone = Phone(Caller(), socket_of_caller)
                    listening = asyncio.create_task(phone.listen())
                    result = await talk(phone, cell, read_wav(recording))
                    if cell != "error":
                        await phone.send(json.dumps({"command": "HANGUP"}))
                    await asyncio.wait_for(listening, 10)
                finally:
                    process.terminate()
                    process.wait(10)
                    console.seek(0)
                    said = console.read()
                    print(*[line for line in said.splitlines() if "Sent " in line or "Received: " in line], sep="\n", file=sys.stderr)
    if cell == "error":
        # Asterisk hangs up and tells the caller no more.
        result = {"error": f"the call was ended: {phone.socket.close_code}"}
    if cell == "interruption":
        result["stopped"] = result["stopped"] and "Received: " in said and "FLUSH_MEDIA" in said
    if cell == "conversation":
        assert "FLUSH_MEDIA" not in said, "nobody interrupted"
        result = {"text": "", "user": "", **result}
    if cell == "close":
        result = {"code": phone.socket.close_code, "clean": True}
    write_wav(heard, phone.heard)
    print(json.dumps(result))


def run(dial, path):
    asyncio.run(main(dial, path, *sys.argv[1:6]))


if __name__ == "__main__":
    run("WebSocket/voxbridge/c(slin16)f(json)", "/asterisk")
