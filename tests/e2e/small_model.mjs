// An OpenAI-shaped server around a small model: node small_model.mjs MODEL.gguf. It prints its port when it serves.
// The name of the model in a request chooses how it answers: "shaped" by the schema of the pilot's answer, "json" with
// any JSON object, "endless" with text until the caller goes. Needs node-llama-cpp in NODE_PATH.
import http from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const entry = createRequire(import.meta.url).resolve("node-llama-cpp");
const { getLlama, LlamaChatSession } = await import(pathToFileURL(entry).href);
const llama = await getLlama({ gpu: false, build: "never", skipDownload: true, logLevel: "error" });
const model = await llama.loadModel({ modelPath: process.argv[2] });
// One thread: with more of them than free cores it waits for itself.
const context = await model.createContext({ contextSize: 2048, threads: 1 });
const sequence = context.getSequence();
const shape = {
  type: "object",
  properties: {
    gpu_needed: { type: "boolean" }, gpus: { enum: [1, 2, 4, 8] }, confidence: { enum: [10, 30, 50, 70, 90] },
    why: { type: "string", maxLength: 60 },
  },
};
const grammars = {
  shaped: await llama.createGrammarForJsonSchema(shape),
  json: await llama.getGrammarFor("json"),
  endless: await llama.createGrammarForJsonSchema({ type: "array", items: { type: "string" }, minItems: 1000 }),
};

async function answer(asked, signal) {
  const [system, user] = asked.messages;
  await sequence.clearHistory();
  const session = new LlamaChatSession({ contextSequence: sequence, systemPrompt: system.content });
  const maxTokens = asked.model === "endless" ? 1500 : asked.max_tokens;
  const before = sequence.tokenMeter.getState();
  const content = await session.prompt(user.content, { maxTokens, grammar: grammars[asked.model], temperature: 0, signal });
  const used = sequence.tokenMeter.diff(before);
  session.dispose({ disposeSequence: false });
  return {
    object: "chat.completion", model: asked.model,
    choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
    usage: { total_tokens: used.usedInputTokens + used.usedOutputTokens },
  };
}

const server = http.createServer(async (request, response) => {
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  let text = "";
  for await (const piece of request) text += piece;
  if (request.url !== "/v1/chat/completions") return response.writeHead(404).end();
  try {
    const body = JSON.stringify(await answer(JSON.parse(text), gone.signal));
    console.log(body);
    response.writeHead(200, { "Content-Type": "application/json" }).end(body);
  } catch (failure) {
    if (!gone.signal.aborted) console.log(`failed: ${failure.stack}`);
    response.writeHead(500).end();
  }
});
server.listen(0, "127.0.0.1", () => console.log(`serves on ${server.address().port}`));
