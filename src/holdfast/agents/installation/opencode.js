// Tells Holdfast what happens in this folder, so that `holdfast undo` can take it back.
// Written by `holdfast agents install opencode`, removed by `holdfast agents uninstall opencode`.
import { spawn } from "node:child_process"

const CLIENT = ["@CLIENT@"]
const ON_FAILURE = "@ON_FAILURE@"
// After so many seconds the client gives up, and says so.
const LIMITS = "@LIMITS@"

// Runs the client with the payload on its standard input, without a shell. It has a time limit of its own.
function ask(payload, directory) {
  const isTool = payload.event.startsWith("tool.")
  const limit = isTool ? LIMITS.tool : payload.event === "dispose" ? LIMITS.end : LIMITS.other
  const policy = payload.event === "tool.execute.before" ? ON_FAILURE : "warn"
  const words = [...CLIENT, "--limit", String(limit), "--on-failure", policy]
  return new Promise((resolve) => {
    const child = spawn(words[0], words.slice(1), { cwd: directory, stdio: ["pipe", "pipe", "pipe"] })
    const out = []
    const err = []
    child.stdout.on("data", (piece) => out.push(piece))
    child.stderr.on("data", (piece) => err.push(piece))
    child.stdin.on("error", () => {})
    child.on("error", (error) => resolve({ code: null, stdout: "", stderr: String(error) }))
    child.on("close", (code) =>
      resolve({ code, stdout: Buffer.concat(out).toString(), stderr: Buffer.concat(err).toString() }),
    )
    child.stdin.end(JSON.stringify(payload))
  })
}

function parsed(text) {
  try {
    return JSON.parse(text)
  } catch {
    return {}
  }
}

export const Holdfast = async ({ client, directory, worktree }) => {
  // What opencode says once and later events need: the version, and which call started a child session.
  const versions = new Map()
  const parents = new Map()
  const calls = new Map()
  const sessions = new Set()
  let untold = ""

  // A subagent may start another one; all of it belongs to the session of the person.
  const rootOf = (id) => parents.get(id)?.parentID ?? id

  async function send(event, sessionID, more = {}) {
    const known = { event, sessionID, directory, worktree, version: versions.get(sessionID) ?? "" }
    const reply = await ask({ ...known, ...(parents.get(sessionID) ?? {}), ...more }, directory)
    const { tell = "", show = "" } = parsed(reply.stdout)
    const message = show || (reply.code === 0 ? reply.stderr.trim() : "")
    if (message) client.tui.showToast({ body: { title: "Holdfast", message, variant: "info" } }).catch(() => {})
    if (tell) untold = untold ? `${untold}\n${tell}` : tell
    return reply
  }

  function stopIfBlocked(reply) {
    if (reply.code === 2) throw new Error(reply.stderr.trim() || "Holdfast blocked this tool.")
    // The client itself is missing or was killed: what is to be done then was settled at installation.
    if (reply.code !== 0 && ON_FAILURE === "block") {
      throw new Error(`Holdfast could not be started, so this tool was not run: ${reply.stderr.trim()}`)
    }
  }

  async function failed(part) {
    const key = `${part.sessionID} ${part.callID}`
    if (!calls.delete(key)) return
    const { input: args, error, time } = part.state
    const duration = time?.end && time?.start ? time.end - time.start : undefined
    await send("tool.failed", part.sessionID, { callID: part.callID, tool: part.tool, args, error, duration })
  }

  async function heard({ type, properties }) {
    if (type === "session.created") {
      const { id, version, parentID } = properties.info
      versions.set(id, version)
      if (parentID && !parents.has(id)) parents.set(id, { parentID: rootOf(parentID) })
      if (!parentID) {
        sessions.add(id)
        await send(type, id)
      }
    } else if (type === "session.idle" && !parents.has(properties.sessionID)) {
      await send(type, properties.sessionID)
    } else if (type === "message.part.updated" && properties.part.type === "tool") {
      const part = properties.part
      const child = part.state.metadata?.sessionId
      if (part.tool === "task" && child) parents.set(child, { parentID: rootOf(part.sessionID), parentCallID: part.callID })
      if (part.state.status === "error") await failed(part)
    }
  }

  return {
    event: async ({ event }) => heard(event),
    "chat.message": async (input, output) => {
      if (!parents.has(input.sessionID)) sessions.add(input.sessionID)
      const text = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      await send("chat.message", input.sessionID, { prompt: text.join("\n"), messageID: output.message?.id })
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const reply = await send("tool.execute.before", sessionID, { callID, tool, args })
      stopIfBlocked(reply)
      calls.set(`${sessionID} ${callID}`, Date.now())
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      const key = `${sessionID} ${callID}`
      const duration = calls.has(key) ? Date.now() - calls.get(key) : undefined
      calls.delete(key)
      const exit = output.metadata?.exit
      const result = { output: String(output.output ?? "").slice(-4096), exit, duration }
      await send("tool.execute.after", sessionID, { callID, tool, args, ...result })
      if (untold) {
        output.output = `${output.output}\n\n${untold}`
        untold = ""
      }
    },
    dispose: async () => {
      for (const each of sessions) await send("dispose", each)
    },
  }
}
