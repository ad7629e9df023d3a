# SPDX-License-Identifier: Apache-2.0
"""The HTTP API in OpenAPI's words, for the model that is served; `GET /openapi.json`.

Source: https://spec.openapis.org/oas/v3.1.0.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quickthaw.handler.http.openapi_schemas import reference, schemas

if TYPE_CHECKING:
    from quickthaw.handler.session import Session

Json = dict[str, Any]

_REFUSED = {
    "400": "What was asked cannot be done; `error.param` names the field.",
    "401": "No API key, or an unknown one.",
    "404": "No such path or model.",
    "405": "No such method here.",
    "413": "The body is too large.",
    "429": "Another request is being answered.",
    "500": "The function failed; its log says why.",
    "503": "The model cannot be read now.",
}


def document(session: Session) -> Json:
    """The whole description."""
    components = schemas(session.model_name, session.vocab_size, session.context_tokens)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "quickthaw",
            "version": "1",
            "description": "Completions of one model, as clients of OpenAI's API ask for them.",
        },
        "paths": {
            "/healthz": _get("Whether it is alive, and with what.", "Health"),
            "/openapi.json": _get("This description."),
            "/metrics": _get("Metrics, for Prometheus.", text="text/plain"),
            "/v1/models": _get("The model that is served.", "ModelList"),
            "/v1/models/{model}": _get("A model by its name.", "Model")
            | {"parameters": [_model_parameter()]},
            "/v1/completions": _post("Prompts to texts.", "CompletionRequest", "Completion"),
            "/v1/chat/completions": _post("Messages to a message.", "ChatRequest", "ChatCompletion"),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _get(summary: str, answer: str | None = None, text: str | None = None) -> Json:
    schema = {"type": "object"} if answer is None else reference(answer)
    content = (
        {"application/json": {"schema": schema}} if text is None else {text: {"schema": {"type": "string"}}}
    )
    return {"get": {"summary": summary, "responses": _responses(content)}}


def _post(summary: str, asked: str, answered: str) -> Json:
    body = {"required": True, "content": {"application/json": {"schema": reference(asked)}}}
    # Events with `stream: true`: a chunk of such an object in each, then [DONE]. 3.1 has no words for that.
    content = {"application/json": {"schema": reference(answered)}, "text/event-stream": {}}
    return {"post": {"summary": summary, "requestBody": body, "responses": _responses(content)}}


def _responses(content: Json) -> Json:
    error = {"application/json": {"schema": reference("Error")}}
    refused = {status: {"description": text, "content": error} for status, text in _REFUSED.items()}
    return {"200": {"description": "As asked.", "content": content}, **refused}


def _model_parameter() -> Json:
    return {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
