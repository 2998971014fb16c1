"""Drives sherpa-onnx's own program sherpa-onnx-online-websocket-client: CELL BASE_URL RECORDING HEARD TEXT."""

import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

# The packages of this family, which need no import.
PACKAGES = next(path for path in sys.path if os.path.isdir(os.path.join(path, "sherpa_onnx", "lib")))


def run(base, recording):
    place = urlsplit(base)
    program = os.path.join(PACKAGES, "bin", "sherpa-onnx-online-websocket-client")
    os.chmod(program, 0o755)
    command = [program, f"--server-ip={place.hostname}", f"--server-port={place.port}", "--samples-per-message=1600"]
    library = os.path.join(PACKAGES, "sherpa_onnx", "lib")
    return subprocess.run(
        [*command, "--seconds-per-message=0.1", recording],
        env={**os.environ, "LD_LIBRARY_PATH": library},
        capture_output=True,
        text=True,
        timeout=35,
    )


def results(printed):
    # The program prints each message behind its own position in the source: file:function:line message.
    for line in printed.splitlines():
        start = line.find("{")
        if start >= 0 and '"segment"' in line:
            yield json.loads(line[start:])


def transcription(base, recording):
    done = run(base, recording)
    final = {it["segment"]: it["text"] for it in results(done.stderr) if it["is_final"] and it["text"]}
    assert any(it["is_eof"] for it in results(done.stderr)), done.stderr
    return {"text": " ".join(final.values())}


def close(base, recording):
    # The program closes the connection by itself after `Done!`.
    done = run(base, recording)
    return {"code": None, "clean": done.returncode == 0 and "Disconnected" in done.stderr}


def main():
    cell, base, recording = sys.argv[1:4]
    cells = {"transcription": transcription, "close": close}
    print(json.dumps(cells[cell](base, recording)))


if __name__ == "__main__":
    main()
