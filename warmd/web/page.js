"use strict";
(() => {
  const BUSY_MS = 1000, IDLE_MS = 2000, PATIENCE_MS = 5000, SHOWN_EVENTS = 30, SHOWN_SUGGESTIONS = 5;
  const TONES = {
    warm: "good", warming: "busy", pending: "wait", deferred: "wait", volatile: "warn",
    stored_not_served: "warn", failed: "bad", unwarmable: "bad", quarantined: "bad",
  };
  const byId = (id) => document.getElementById(id);
  const rows = new Map();
  let newest = 0, timer = null, isAsking = false, failedAt = null, pid = null;

  // --- numbers for people ---

  const whole = new Intl.NumberFormat("en");
  const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
  const many = (value, one, more) => `${count(value)} ${value === 1 ? one : more}`;
  const number = (value, digits) => value.toLocaleString("en", { maximumSignificantDigits: digits });

  function bytes(value) {
    if (value === null || value === undefined) return "–";
    const units = ["B", "KB", "MB", "GB", "TB"];
    let index = 0;
    while (Math.abs(value) >= 999.5 && index < units.length - 1) { value /= 1000; index += 1; }
    return `${number(value, 3)} ${units[index]}`;
  }

  function duration(seconds) {
    if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
    if (seconds < 60) return `${number(seconds, 2)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    return many(Math.floor(seconds / 86400), "day", "days");
  }

  const ago = (at) => (at ? `${duration(Math.max(1, Math.floor(Date.now() / 1000 - at)))} ago` : "–");
  const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
  const name = (path) => path.split(/[\\/]/).filter(Boolean).pop() || path;

  // --- touching the page only where something changed keeps selections and screen readers calm ---

  function say(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  function mark(node, attribute, value) {
    if (node.getAttribute(attribute) !== String(value)) node.setAttribute(attribute, value);
  }

  const field = (node, key) => node.querySelector(`[data-field="${key}"]`);

  function show(node, isShown) {
    if (node.hidden === isShown) node.hidden = !isShown;
  }

  function list(node, lines) {
    if (lines.join("\n") === [...node.children].map((item) => item.textContent).join("\n")) return;
    node.replaceChildren(...lines.map((line) => {
      const item = document.createElement("li");
      item.textContent = line;
      return item;
    }));
  }

  // --- what is shown ---

  function overall(status) {
    const all = status.entries, warm = all.filter((entry) => entry.state === "warm").length;
    const busy = all.filter((entry) => entry.state === "warming");
    if (!status.model) return ["wait", "Loading the model"];
    if (status.document.errors.length) return ["bad", "The prompts file is invalid"];
    if (status.paused) return ["warn", `Paused, ${warm} of ${all.length} warm`];
    if (busy.length) return ["busy", `Warming, ${warm} of ${all.length} warm`];
    if (!all.length) return ["wait", "Nothing to keep warm"];
    if (warm === all.length) return ["good", "All warm"];
    const isBad = all.some((entry) => TONES[entry.state] === "bad");
    return [isBad ? "bad" : "warn", `${warm} of ${all.length} warm`];
  }

  function showTop(status) {
    const [tone, text] = overall(status);
    mark(byId("overall"), "data-tone", tone);
    say(byId("overall"), text);
    say(byId("model"), status.model ? name(status.model) : "");
    mark(byId("model"), "title", status.model || "");
    const title = `${text} · warmd`;
    if (document.title !== title) document.title = title;
    say(byId("about"), `warmd ${status.version}, process ${status.pid}, up ${duration(status.uptime_s)}`);
  }

  function showProblems(found) {
    show(byId("problems"), found.errors.length > 0);
    const kept = found.accepted ? `generation ${found.accepted} stays in force` : "there is none in force yet";
    say(byId("problems-title"), `${name(found.path)} is not valid; ${kept}`);
    const lines = found.errors.map((error) => {
      const place = [error.line, error.column].filter((part) => part !== null).join(":");
      return [place, error.message, error.path === "$" ? "" : `(at ${error.path})`].filter(Boolean).join(" ");
    });
    list(byId("problem-list"), lines);
    say(byId("document"), found.accepted ? `${name(found.path)}, generation ${found.accepted}` : name(found.path));
    mark(byId("document"), "title", found.path);
  }

  function showTotals(totals, live) {
    say(byId("total-warm"), totals.entries ? `${totals.states.warm} of ${totals.entries}` : "–");
    say(byId("total-saved"), count(live?.tokens_saved));
    say(byId("total-hits"), count(live?.hits));
    say(byId("total-near"), count(live?.near_misses));
  }

  function showSuggestions(found) {
    const suggestions = found || [];
    show(byId("suggestions"), suggestions.length > 0);
    const lines = suggestions.slice(0, SHOWN_SUGGESTIONS).map((item) =>
      `${many(item.tokens, "token", "tokens")}, prefilled ${count(item.times)} times`);
    list(byId("suggestion-list"), lines);
  }

  function showMemory(memory) {
    show(byId("memory"), Boolean(memory));
    if (!memory) return;
    const reserve = memory.reserve || 0, taken = Math.max(0, memory.limit - reserve - memory.headroom);
    const isKnown = !memory.error;
    const parts = {
      warm: memory.warm,
      rest: Math.max(0, taken - memory.warm - memory.cache),
      cache: memory.cache,
      free: Math.max(0, memory.headroom),
      reserve,
    };
    const scale = Object.values(parts).reduce((total, part) => total + part, 0) || 1;
    for (const [part, value] of Object.entries(parts)) {
      byId("memory-bar").querySelector(`[data-part="${part}"]`).style.width = `${(isKnown ? value : 0) / scale * 100}%`;
      say(document.querySelector(`.legend [data-part="${part}"] dd`), isKnown || part === "warm" ? bytes(value) : "–");
    }
    const text = isKnown ? `${bytes(taken)} of ${bytes(memory.limit)}` : "unknown";
    say(byId("memory-text"), text);
    mark(byId("memory-bar"), "aria-valuemax", memory.limit);
    mark(byId("memory-bar"), "aria-valuenow", isKnown ? Math.min(taken, memory.limit) : 0);
    mark(byId("memory-bar"), "aria-valuetext", text);
    const pressure = { 2: "The system is short of memory: warming has stopped for now.",
      4: "The system is very short of memory: the entries of the lowest priority are freed." };
    const short = memory.headroom < 0 ? `${bytes(-memory.headroom)} more than warming may take.` : "";
    const note = memory.error || pressure[memory.pressure] || short;
    say(byId("memory-note"), note);
    show(byId("memory-note"), Boolean(note));
  }

  function pace(entry) {
    if (!entry.tokens_per_s) return "";
    const left = (entry.tokens - entry.done_tokens) / entry.tokens_per_s;
    return `, ${number(entry.tokens_per_s, 2)}/s, ${left < 1 ? "almost done" : `${duration(Math.ceil(left))} left`}`;
  }

  function showProgress(row, entry) {
    const bar = row.querySelector(".progress"), isWarming = entry.state === "warming" && entry.tokens > 0;
    show(bar, isWarming);
    if (!isWarming) {
      say(field(row, "left"), "");
      return;
    }
    const percent = Math.min(100, Math.floor(entry.done_tokens / entry.tokens * 100));
    bar.firstElementChild.style.width = `${percent}%`;
    mark(bar, "aria-valuenow", percent);
    mark(bar, "aria-label", `Warming ${entry.name}`);
    say(field(row, "left"), `${percent} %${pace(entry)}`);
  }

  function showEntry(row, entry) {
    const values = {
      name: entry.name, reason: entry.reason || "", state: entry.state.replaceAll("_", " "), tokens: count(entry.tokens),
      memory: bytes(entry.kv_bytes), hits: count(entry.hits), saved: count(entry.tokens_saved),
      near: count(entry.near_misses), last: ago(entry.last_hit_at),
    };
    for (const [key, text] of Object.entries(values)) say(field(row, key), text);
    mark(field(row, "state"), "data-tone", TONES[entry.state] || "wait");
    showProgress(row, entry);
  }

  function showEntries(entries) {
    const body = byId("entries"), names = new Set(entries.map((entry) => entry.name));
    for (const [key, row] of rows) {
      if (!names.has(key)) { row.remove(); rows.delete(key); }
    }
    entries.forEach((entry, index) => {
      if (!rows.has(entry.name)) rows.set(entry.name, byId("entry-row").content.cloneNode(true).firstElementChild);
      const row = rows.get(entry.name);
      showEntry(row, entry);
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] || null);
    });
    show(byId("no-entries"), !entries.length);
    show(body.parentElement, entries.length > 0);
  }

  const DETAILS = {
    tokens: (value) => many(value, "token", "tokens"), new_tokens: (value) => `${count(value)} new`,
    reused_tokens: (value) => value && `${count(value)} reused`, own_tokens: (value) => `${count(value)} own`,
    shared_tokens: (value) => value && `${count(value)} shared`, prefix_tokens: () => "",
    matched: (value, fields) => `${count(value)} of ${count(fields.prefix_tokens)} matched`, cached: (value) => `${count(value)} cached`,
    ms: (value) => duration(value / 1000), retry_in_s: (value) => `again in ${duration(value)}`,
    disk_tokens: (value) => value && `${count(value)} from disk`, disk_bytes: (value) => value && bytes(value), disk_ms: () => "",
    kv_bytes: bytes, needed: (value) => `needs ${bytes(value)}`, available: (value) => `${bytes(value)} available`,
    limit: (value) => `limit ${bytes(value)}`, headroom: (value) => `headroom ${bytes(value)}`,
    fits: (value) => (value ? "fits" : "does not fit"), errors: (value) => many(value, "error", "errors"),
    entries: (value) => many(value, "entry", "entries"), state: (value) => value.replaceAll("_", " "), source: () => "",
    generation: (value) => `generation ${value}`, kept_generation: (value) => `generation ${value} stays`, pid: () => "",
  };

  function details(event) {
    const { entry, ...fields } = event.fields;
    // A plan's and a pressure's `warm` are not of one kind.
    const labels = event.event === "memory.pressure" ? { ...DETAILS, warm: (value) => `warm ${bytes(value)}` } : DETAILS;
    // Of what is merely counted, none is no news.
    const parts = Object.entries(fields).map(([key, value]) =>
      labels[key] ? labels[key](value, fields) : value && `${key.replaceAll("_", " ")} ${count(value)}`);
    return parts.filter(Boolean).join(" · ");
  }

  function eventRow(event) {
    const row = byId("event-row").content.cloneNode(true).firstElementChild;
    const time = row.querySelector("time");
    time.textContent = clock(event.at);
    time.dateTime = new Date(event.at * 1000).toISOString();
    row.dataset.level = event.level;
    field(row, "event").textContent = event.event;
    field(row, "entry").textContent = event.fields.entry || "";
    field(row, "details").textContent = details(event);
    return row;
  }

  function showEvents(events) {
    const shown = byId("events");
    const fresh = events.filter((event) => event.id > newest).reverse().slice(0, SHOWN_EVENTS);
    if (fresh.length) {
      newest = fresh[0].id;
      shown.prepend(...fresh.map(eventRow));
      while (shown.children.length > SHOWN_EVENTS) shown.lastElementChild.remove();
    }
    show(byId("no-events"), !shown.children.length);
  }

  function showAll(status) {
    if (pid !== null && pid !== status.pid) {
      // Another process counts its events anew.
      newest = 0;
      byId("events").replaceChildren();
    }
    pid = status.pid;
    failedAt = null;
    show(byId("offline"), false);
    byId("content").classList.remove("stale");
    showTop(status);
    showProblems(status.document);
    showTotals(status.totals, status.live);
    showMemory(status.memory);
    showEntries(status.entries);
    showSuggestions(status.suggestions);
    showEvents(status.events);
    show(byId("content"), true);
  }

  function showFailure() {
    failedAt = failedAt || Date.now() / 1000;
    mark(byId("overall"), "data-tone", "bad");
    say(byId("overall"), "Not reachable");
    say(byId("offline"), `The server has not answered since ${clock(failedAt)}. This page keeps trying.`);
    show(byId("offline"), true);
    byId("content").classList.add("stale");
    if (document.title !== "Not reachable · warmd") document.title = "Not reachable · warmd";
  }

  // --- asking ---

  async function ask() {
    const controller = new AbortController(), giveUp = setTimeout(() => controller.abort(), PATIENCE_MS);
    try {
      const answer = await fetch("/warmd/status", { cache: "no-store", signal: controller.signal });
      return answer.ok ? await answer.json() : null;
    } catch {
      return null;
    } finally {
      clearTimeout(giveUp);
    }
  }

  async function poll() {
    if (isAsking) return;
    clearTimeout(timer);
    isAsking = true;
    const status = await ask();
    isAsking = false;
    // A browser may stop what a page in the background asks for.
    if (document.hidden) return;
    const isBusy = status !== null && status.entries.some((entry) => entry.state === "warming");
    timer = setTimeout(poll, isBusy ? BUSY_MS : IDLE_MS);
    if (status === null) showFailure();
    else showAll(status);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else poll();
  });
  if (!document.hidden) poll();
})();
