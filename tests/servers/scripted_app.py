"""What servers without a model share: pages for tests, and the start."""

import json
import socket

import uvicorn
from fastapi import FastAPI, Request


def scripted_app(script, record, model):
    """An app with the pages of any vLLM server and those for tests."""
    app = FastAPI()
    add_script_pages(app, script, record)

    @app.get("/health")
    async def health():
        return {}

    @app.get("/v1/models")
    async def models():
        return {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "vllm"}]}

    return app


def add_script_pages(app, script, record):
    """Adds pages for tests. `POST /script` changes attributes of `script`; `GET /record` answers `record()`."""

    @app.post("/script")
    async def set_script(request: Request):
        for name, value in (await request.json()).items():
            if not hasattr(script, name):
                raise KeyError(name)
            setattr(script, name, value)
        return {}

    @app.get("/record")
    async def get_record():
        return record()


async def run_app(app, port=0):
    """Serves on this port, or any, and prints one JSON line with it."""
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", ws="websockets-sansio", ws_max_size=64 << 20)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])
