#!/usr/bin/env python3
"""Runs the clients that people use against gollm serve: the openai package, and
lm-evaluation-harness on the tasks of testdata/lm_eval, whose log-probabilities must be those
of gollm logits and whose texts those of gollm generate, under several attention specs.

Without packages of its own it makes build/serve-venv with them and runs itself there."""
import concurrent.futures
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["openai==3.54.0", "lm_eval[api]==0.4.13"]
MODEL = "testdata/stories260K.gguf"
SPECS = ["dense", "streaming(sink=2,window=12)", "prefill=dense decode=quest(budget=16,page=4)"]
GOLLM = os.environ.get("GOLLM", str(ROOT / "bin/gollm"))


def own_venv():
    """Runs this script with the packages."""
    venv = pathlib.Path(os.environ.get("SERVE_VENV", ROOT / "build/serve-venv"))
    if pathlib.Path(sys.prefix).resolve() == venv.resolve():
        return
    if not (venv / "bin/lm_eval").exists():
        print(f"installing {' '.join(PACKAGES)} into {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", *PACKAGES], check=True)
    os.execv(venv / "bin/python", [str(venv / "bin/python"), *sys.argv])


class Server:
    """gollm serve on a free port while the block runs."""

    def __init__(self, *args):
        template = [] if "--template" in args else ["--template", "llama2"]
        self.args = [GOLLM, "serve", "-m", MODEL, "--port", "0", *template, *args]

    def __enter__(self):
        self.process = subprocess.Popen(self.args, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if m := re.search(r"msg=listening url=(\S+)", line):
                self.url = m[1]
                break
        else:
            sys.exit("gollm serve did not start")
        self.log = open(os.devnull, "w")
        self.drain = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=self.log)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        code = self.process.wait(timeout=60)
        self.drain.wait()
        check("the server ends with code 0", code == 0)


done = 0


def check(what, ok, *more):
    global done
    done += 1
    if not ok:
        sys.exit(f"serve-clients: {what}: {more}")


def gollm(*args, stdin=""):
    return subprocess.run([GOLLM, *args], input=stdin, capture_output=True, text=True, check=True).stdout


def child():
    """A schema as users of the package write it."""
    import typing

    import pydantic

    class Child(pydantic.BaseModel):
        kind: typing.Literal["girl", "boy"]
        old: bool

    return Child


def openai_package():
    """Completions, chat, streams, log-probabilities and errors by OpenAI's own client."""
    import openai

    key = "secret"
    with tempfile.NamedTemporaryFile("w", suffix=".key") as f:
        f.write(key)
        f.flush()
        with Server("--api-key-file", f.name, "--attn", SPECS[0], "--attn", SPECS[1], "--max-body", "1", "--queue", "8", "--slots", "1") as s:
            c = openai.OpenAI(base_url=s.url, api_key=key, max_retries=0)
            model = c.models.list().data[0].id
            check("the model's name", model == "stories260K" and c.models.retrieve(model).id == model, model)
            for spec in SPECS[:2]:
                got = c.completions.create(model=model, prompt="Once upon a time", max_tokens=50, temperature=0, extra_body={"attn": spec})
                want = gollm("generate", "-m", MODEL, "-p", "Once upon a time", "-n", "50", "--temp", "0", "--attn", spec)
                check(f"the text of {spec}", got.choices[0].text == want, got, want)
                check("the spec in usage", got.usage.model_extra["gollm"]["attn"] == spec)
            echo = c.completions.create(model=model, prompt="Once upon a time", max_tokens=0, echo=True, logprobs=2)
            logs = echo.choices[0].logprobs
            check("echo", echo.choices[0].text == "Once upon a time" and logs.token_logprobs[0] is None and all(x < 0 for x in logs.token_logprobs[1:]))
            talk = dict(model=model, messages=[{"role": "user", "content": "Tell me a story."}], temperature=0, max_completion_tokens=20)
            whole = c.chat.completions.create(**talk, logprobs=True, top_logprobs=3)
            check("the tokens of a chat", len(whole.choices[0].logprobs.content) == 20 and whole.choices[0].finish_reason == "length")
            events = list(c.chat.completions.create(**talk, stream=True, stream_options={"include_usage": True}))
            text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
            check("a stream is the answer", text == whole.choices[0].message.content, text)
            check("the usage of a stream", events[-1].usage.completion_tokens == 20)
            parsed = c.chat.completions.parse(**talk | {"max_completion_tokens": 100}, response_format=child())
            check("parse() with a schema", parsed.choices[0].message.parsed.kind in ("girl", "boy"), parsed)
            stream = c.completions.create(model=model, prompt="Once", max_tokens=400, stream=True, logit_bias={"1": -100, "2": -100})
            next(iter(stream))
            stream.close()  # goes away; the only slot must be free for the next request
            check("a request after one that was cancelled", c.completions.create(model=model, prompt="Tom", max_tokens=2).usage.completion_tokens == 2)
            for error, call in [
                (openai.AuthenticationError, lambda: openai.OpenAI(base_url=s.url, api_key="x", max_retries=0).models.list()),
                (openai.NotFoundError, lambda: c.completions.create(model="other", prompt="a")),
                (openai.BadRequestError, lambda: c.completions.create(model=model, prompt="a", max_tokens=10**6)),
                (openai.BadRequestError, lambda: c.completions.create(model=model, prompt="a", extra_body={"attn": "nothing"})),
                (openai.UnprocessableEntityError, lambda: c.chat.completions.create(**talk, tools=[{"type": "function", "function": {"name": "f"}}])),
                (openai.UnprocessableEntityError, lambda: c.responses.create(model=model, input="a", store=True)),
                (openai.UnprocessableEntityError, lambda: c.responses.create(model=model, input="a", previous_response_id="resp_1")),
                (openai.BadRequestError, lambda: c.completions.create(model=model, prompt=["a"] * 9)),
                (openai.APIStatusError, lambda: c.completions.create(model=model, prompt="a" * (1 << 20))),
            ]:
                try:
                    call()
                    check(f"no {error.__name__}", False)
                except error as e:
                    check("an error says something", e.message)
                    if error is openai.APIStatusError:
                        check("the status of a large body", e.status_code == 413, e.status_code)

            def busy(_):
                try:
                    c.completions.create(model=model, prompt="a", max_tokens=300, extra_body={"ignore_eos": True})
                except openai.RateLimitError as e:
                    return e.response.headers.get("retry-after")

            with concurrent.futures.ThreadPoolExecutor(32) as pool:
                waits = [w for w in pool.map(busy, range(32)) if w]
            check("a full queue says when to come again", waits and all(w == "1" for w in waits), waits)


# A template that writes tools and calls as Qwen's does.
TOOL_TEMPLATE = """{{ bos_token }}{% if tools %}{{ tools | length }} tools{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}assistant: """


def openai_tools():
    """Tools of the package: calls whole, in a stream and parsed, and their answers."""
    import openai

    class Weather(child()):
        """The weather."""

    helper, flat = openai.pydantic_function_tool(Weather), dict(type="function", strict=True, **{
        k: v for k, v in openai.pydantic_function_tool(Weather)["function"].items() if k != "strict"})
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(TOOL_TEMPLATE)
        f.flush()
        with Server("--template", f.name) as s:
            c = openai.OpenAI(base_url=s.url, api_key="none", max_retries=0)
            messages = [{"role": "user", "content": "How is it?"}]
            talk = dict(model="stories260K", messages=messages, tools=[helper], temperature=1, seed=5, max_tokens=200)
            forced = talk | {"tool_choice": "required", "parallel_tool_calls": False}
            answer = c.chat.completions.create(**forced).choices[0]
            call = answer.message.tool_calls[0]
            arguments = json.loads(call.function.arguments)
            check("a call", answer.finish_reason == "tool_calls" and answer.message.content is None and call.function.name == "Weather", answer)
            check("its arguments", arguments["kind"] in ("girl", "boy") and isinstance(arguments["old"], bool), arguments)
            parsed = c.chat.completions.parse(**forced).choices[0].message
            check("parsed arguments", isinstance(parsed.tool_calls[0].function.parsed_arguments, Weather), parsed)
            with c.chat.completions.stream(**forced) as stream:
                kinds = {e.type for e in stream}
                final = stream.get_final_completion().choices[0]
            check("a call in a stream", final.message.tool_calls[0].function.arguments == call.function.arguments and final.finish_reason == "tool_calls", final)
            check("its events", {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds, kinds)
            named = c.chat.completions.create(**talk | {"tool_choice": {"type": "function", "function": {"name": "Weather"}}})
            check("a named call", [t.function.name for t in named.choices[0].message.tool_calls] == ["Weather"], named)
            for before in (answer.message, answer.message.model_dump(), parsed):
                more = messages + [before, {"role": "tool", "tool_call_id": call.id, "content": "Good."}]
                check("what follows on a call", c.chat.completions.create(**talk | {"messages": more, "tool_choice": "none", "max_tokens": 5}).choices[0].message.content)

            ask = dict(model="stories260K", input="How is it?", temperature=1, max_output_tokens=200, extra_body={"seed": 5})
            text = c.responses.create(**ask | {"instructions": "Be kind.", "max_output_tokens": 10})
            check("a response", text.output_text and text.status == "incomplete" and text.usage.output_tokens == 10, text)
            check("the spec in its usage", text.usage.model_extra["gollm"]["attn"] == "dense", text)
            with c.responses.stream(**ask) as stream:
                deltas = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            check("a streamed response", deltas == c.responses.create(**ask).output_text, deltas)
            check("parse() of a response", c.responses.parse(**ask, text_format=child()).output_parsed.kind in ("girl", "boy"))
            tools = ask | {"tools": [flat], "tool_choice": "required", "parallel_tool_calls": False}
            first = c.responses.create(**tools)
            item = first.output[0]
            check("a call of a response", item.type == "function_call" and json.loads(item.arguments)["kind"] in ("girl", "boy"), first)
            with c.responses.stream(**tools) as stream:
                deltas = "".join(e.delta for e in stream if e.type == "response.function_call_arguments.delta")
                final = stream.get_final_response()
            check("a call in a streamed response", deltas == item.arguments == final.output[0].arguments, deltas, item)
            done = [{"role": "user", "content": "How is it?"}, *first.output, {"type": "function_call_output", "call_id": item.call_id, "output": "Good."}]
            check("a response to the answer of a call", c.responses.create(**ask | {"input": done, "max_output_tokens": 5}).output_text)


def samples(spec, folder):
    """What lm_eval got of a server of one spec, by task."""
    with Server("--attn", spec) as s:
        env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder}
        run = subprocess.run([
            sys.executable, "-m", "lm_eval", "--model", "local-completions", "--include_path", "testdata/lm_eval",
            "--tasks", "gollm_choice,gollm_generate", "--log_samples", "--output_path", folder,
            "--model_args", f"model=stories260K,base_url={s.url}/completions,tokenizer_backend=remote,num_concurrent=4,max_length=500",
        ], env=env, capture_output=True, text=True)
    check(f"lm_eval under {spec}", run.returncode == 0, run.stdout[-3000:], run.stderr[-3000:])
    return {name: [json.loads(line) for file in pathlib.Path(folder).rglob(f"samples_{name}_*.jsonl") for line in file.open()] for name in ["gollm_choice", "gollm_generate"]}


def tokens(text):
    """The ids of a text, without BOS."""
    return json.loads(gollm("tokenize", "-m", MODEL, "--no-bos", stdin=text))


def logprob(context, rest, spec, folder):
    """The log-probability of a continuation by gollm logits."""
    import numpy

    ids, first = tokens(context + rest), len(tokens(context))
    path = pathlib.Path(folder, "ids.json")
    path.write_text(json.dumps(ids))
    gollm("logits", "-m", MODEL, "--tokens", str(path), "-o", f"{folder}/logits", "--attn", spec)
    logits = numpy.fromfile(f"{folder}/logits", "<f4").astype("f8").reshape(len(ids), -1)
    total = 0.0
    for i in range(first, len(ids)):
        row = logits[i - 1]
        total += row[ids[i]] - row.max() - math.log(numpy.exp(row - row.max()).sum())
    return total, len(ids) - first


def lm_eval_package():
    """Log-probabilities and texts of lm_eval beside those of the command line."""
    for spec in SPECS:
        with tempfile.TemporaryDirectory() as folder:
            got = samples(spec, folder)
            worst = 0.0
            for sample in got["gollm_choice"]:
                for i, answer in enumerate(sample["filtered_resps"]):
                    args = sample["arguments"][f"gen_args_{i}"]
                    want, n = logprob(args["arg_0"], args["arg_1"], spec, folder)
                    worst = max(worst, abs(float(answer[0]) - want) / n)
            check(f"log-probabilities under {spec}", worst <= 1e-4 and len(got["gollm_choice"]) == 6, worst)
            for sample in got["gollm_generate"]:
                text = sample["arguments"]["gen_args_0"]["arg_0"]
                want = gollm("generate", "-m", MODEL, "--no-bos", "-p", text, "-n", "40", "--temp", "0", "--stop", ".", "--attn", spec)
                check(f"a text under {spec}", sample["resps"][0][0] == want, sample["resps"], want)
            check("texts", len(got["gollm_generate"]) == 4)
            print(f"{spec}: log-probabilities of lm_eval within {worst:.1e} per token of gollm logits, texts those of gollm generate")


if __name__ == "__main__":
    own_venv()
    os.chdir(ROOT)
    openai_package()
    openai_tools()
    print("the openai package: as it should be")
    lm_eval_package()
    print(f"{done} passed, 0 failed")
