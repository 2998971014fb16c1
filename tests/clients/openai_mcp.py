"""Lets the model call tools of a server that the client names, through OpenAI's public Python library:
python3 openai_mcp.py CODE URL [response]

The code makes a client and connects it; the URL is the server's. It is named for the session, or with `response` for each
response that answers a question. One tool needs the client's approval. Prints the listed tools, the
calls with their results, the approved tools and the answers as JSON. `invalid` lists the events that the library's own types reject.
"""

import asyncio
import json
import sys

from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter, ValidationError
from readme_code import evaluate

PATIENCE_S = 60
QUESTIONS = ["How warm is it in the hall?", "What does the header say?"]


async def receive(connection, invalid):
    schema = TypeAdapter(RealtimeServerEvent)
    while True:
        data = await connection.recv_bytes()
        try:
            schema.validate_json(data)
        except ValidationError as error:
            invalid.append(f"{data[:300]}: {error}")
        yield connection.parse_event(data)


async def ask(connection, text, response):
    content = [{"type": "input_text", "text": text}]
    await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
    await connection.response.create(response=response)


async def take_item(connection, item, came):
    match item.type:
        case "mcp_list_tools":
            came["listed"] = [tool.name for tool in item.tools]
        case "mcp_approval_request":
            came["approved"].append([item.name, json.loads(item.arguments)])
            answer = {"type": "mcp_approval_response", "id": "approval", "approval_request_id": item.id, "approve": True}
            await connection.conversation.item.create(item=answer)
        case "mcp_call":
            came["called"].append([item.server_label, item.name, json.loads(item.arguments), item.output])


async def run(code, url, scope="session"):
    came = {"listed": [], "called": [], "approved": [], "answers": [], "errors": [], "invalid": []}
    server = {
        "type": "mcp",
        "server_label": "house",
        "server_url": url,
        "authorization": "secret-token",
        "allowed_tools": ["temperature", "header"],
        "require_approval": {"never": {"tool_names": ["temperature"]}},
    }
    questions = list(QUESTIONS)
    in_session, in_response = ([], {"tools": [server]}) if scope == "response" else ([server], {})
    async with evaluate(code, AsyncOpenAI=AsyncOpenAI) as connection:
        await connection.session.update(session={"type": "realtime", "tools": in_session})
        async for event in receive(connection, came["invalid"]):
            match event.type:
                case "session.updated" if in_session:
                    came["echo"] = event.session.tools[0].model_dump(exclude_none=True)
                case "session.updated":
                    await ask(connection, questions.pop(0), in_response)
                case "mcp_list_tools.completed" if in_session:
                    await ask(connection, questions.pop(0), in_response)
                case "conversation.item.done":
                    await take_item(connection, event.item, came)
                case "response.mcp_call.completed":
                    await connection.response.create()
                case "response.done":
                    words = [item.content[0].transcript for item in event.response.output if item.type == "message"]
                    came["answers"] += words
                    if words and not questions:
                        return came
                    if words:
                        await ask(connection, questions.pop(0), in_response)
                case "error":
                    came["errors"].append(event.error.message)


print(json.dumps(asyncio.run(asyncio.wait_for(run(*sys.argv[1:4]), PATIENCE_S))))
