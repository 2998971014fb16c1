"""A server of the Model Context Protocol, of PyPI's package `mcp`, with tools that work and tools that do not.

    mcp_server.py [--http [--json]]

Without options it talks on standard input and output. With `--http` it serves streamable HTTP at /mcp, and prints one JSON line with
its port; with `--json` its answers are JSON in place of events.
"""

import argparse
import asyncio
import base64
import json
import os
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

# A PNG file of one pixel.
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

server = MCPServer("house", log_level="ERROR")


@server.tool()
def temperature(room: str) -> str:
    """Temperature in a room of the house."""
    return f"It is 21 degrees in the {room}."


@server.tool(structured_output=False)
def variable(name: str) -> str:
    """A variable of the environment."""
    return os.environ.get(name, "(none)")


@server.tool(structured_output=False)
def header(name: str, ctx: Context) -> str:
    """A header of the request."""
    return (ctx.headers or {}).get(name.lower(), "(none)")


@server.tool(structured_output=False)
async def sleep(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return f"slept {seconds} s"


@server.tool(structured_output=False)
def large(length: int) -> str:
    """A long text."""
    return "x" * length


@server.tool(structured_output=False)
def picture() -> Image:
    """A picture of the garden."""
    return Image(data=PICTURE, format="png")


@server.tool(structured_output=False)
def fail() -> str:
    """Fails."""
    raise ToolError("the valve is stuck")


@server.tool(structured_output=False)
def die() -> str:
    """Ends the server."""
    os._exit(3)


@server.tool(structured_output=False)
async def grow(ctx: Context) -> str:
    """Adds a tool."""
    server.add_tool(lambda: "grown", name="grown", description="Is new.")
    await ctx.session.send_tool_list_changed()
    return "grown"


async def serve_http(as_json):
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    config = uvicorn.Config(server.streamable_http_app(json_response=as_json), log_level="error")
    await uvicorn.Server(config).serve(sockets=[listener])


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--http", action="store_true")
    options.add_argument("--json", action="store_true")
    options = options.parse_args()
    if options.http:
        asyncio.run(serve_http(options.json))
    else:
        print("house is ready", file=sys.stderr)
        server.run("stdio")


main()
