// What the pages do beyond being read: live numbers on the fleet's page, local times, and the buttons of a feed's page without a reload.
"use strict";

const by = (id) => document.getElementById(id);
// Without the user name and password that the page's own address may hold, with which nothing can be fetched.
const at = (path) => new URL(path, location.origin + location.pathname);

// Puts a part of a page that the server rendered in place of the one that is shown, unless somebody is at work in it.
function replace(id, html) {
  const old = by(id);
  const selection = document.getSelection();
  const busy = old.contains(document.activeElement) || (!selection.isCollapsed && old.contains(selection.anchorNode));
  if (busy) return;
  old.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  localTimes();
}

function fleet(pulse) {
  let source, later;
  const state = (words, lost) => {
    pulse.hidden = false;
    pulse.classList.toggle("lost", lost);
    pulse.lastElementChild.textContent = words;
  };
  const numbers = (event) => {
    const { texts, paths, values } = JSON.parse(event.data);
    for (const shown of document.querySelectorAll("[data-text]")) {
      const text = texts[shown.dataset.text];
      if (text !== undefined && shown.textContent !== text) shown.textContent = text;
    }
    for (const shown of document.querySelectorAll("[data-path]")) {
      shown.setAttribute("d", paths[shown.dataset.path] ?? "");
      shown.dataset.values = values[shown.dataset.path] ?? "";
    }
    for (const tile of document.querySelectorAll("[data-warns]")) tile.classList.toggle("warns", texts[tile.dataset.warns] !== "0");
    state("live", false);
  };
  const lists = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) replace(id, html);
  };
  const open = () => {
    source = new EventSource(at("live"));
    source.addEventListener("numbers", numbers);
    source.addEventListener("lists", lists);
    // The server ends each stream after a while: the next one is opened with the login of that moment.
    // After a logout the browser needs a moment to forget the login.
    source.addEventListener("again", () => {
      source.close();
      later = setTimeout(open, 1000 + 1000 * Math.random());
    });
    source.onerror = () => state(source.readyState === EventSource.CLOSED ? "not live: reload" : "reconnecting", true);
  };
  // A page that nobody sees needs no numbers.
  document.addEventListener("visibilitychange", () => {
    source?.close();
    clearTimeout(later);
    if (!document.hidden) open();
  });
  open();
}

// Spares the reload after a button of a feed's page: the form is sent in the background, and the parts of the page that the answer
// brings take the places of those that are shown.
function feed(form) {
  function show(html) {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const id of ["feed", "buttons", "details", "done"]) {
      const part = page.getElementById(id);
      if (part) by(id).replaceWith(part);
    }
    localTimes();
  }

  // Changes when a button is pressed, and when its answer is there: what was requested before is older than what is shown then.
  let actions = 0;

  async function renew() {
    const before = actions;
    const answer = await fetch(at(""), { cache: "no-store" });
    const html = await answer.text();
    if (!answer.ok || actions !== before) return;
    const done = by("done").textContent;
    show(html);
    by("done").textContent = done;
  }

  // A refresh is answered before the poll: look again until the poll has come, for a while, or until another button is pressed.
  async function follow(version) {
    const before = actions;
    for (let turn = 0; turn < 15 && actions === before && by("feed").dataset.version === version; turn += 1) {
      await new Promise((resolve) => setTimeout(resolve, 1000 + 500 * turn));
      await renew();
    }
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = event.submitter;
    // The property of a button without the attribute is the page's own address.
    const target = new URL(button.hasAttribute("formaction") ? button.formAction : form.action);
    const version = by("feed").dataset.version;
    actions += 1;
    button.disabled = true;
    by("done").className = "";
    by("done").textContent = "Sending …";
    try {
      const answer = await fetch(target, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "application/json" } });
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error((await answer.json()).detail ?? answer.statusText);
      const html = await answer.text();
      actions += 1;
      show(html);
      if (/\/(refresh|requeue)$/.test(target.pathname)) await follow(version);
    } catch (error) {
      by("done").className = "bad";
      by("done").textContent = "That did not work: " + error.message;
    } finally {
      button.disabled = false;
    }
  });
}

// Reads the values of a chart where the pointer is, or where the arrow keys lead.
function chart(svg) {
  const series = [...svg.querySelectorAll("[data-values]")];
  const readout = svg.parentElement.querySelector(".readout");
  const cursor = svg.querySelector(".cursor");
  const { width, height } = svg.viewBox.baseVal;
  let index = -1;

  function read(wanted) {
    const columns = series.map((one) => one.dataset.values.split("|"));
    const last = columns[0].length - 1;
    if (last < 1) return;
    index = Math.max(0, Math.min(last, wanted));
    const parts = series.map((one, number) => `${one.dataset.name} ${columns[number][index] ?? "–"}`);
    const [, amount, unit] = /^([\d,]+) (\w+)/.exec(by("span").textContent) ?? [];
    const ago = ((last - index) / last) * Number(amount);
    const when = index === last ? "now" : `${ago < 10 ? ago.toFixed(1) : Math.round(ago)} ${unit} ago`;
    readout.textContent = `${when}: ${parts.join(", ")}`;
    cursor.setAttribute("d", `M${(index / last) * width},0V${height}`);
  }

  function leave() {
    index = -1;
    readout.textContent = "";
    cursor.setAttribute("d", "");
  }

  const last = () => series[0].dataset.values.split("|").length - 1;
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    read(Math.round(((event.clientX - box.left) / box.width) * last()));
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("focus", () => read(last()));
  svg.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: last() }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    read(to);
  });
}

// Times are told as seen from now; over them stands the reader's own time, with its zone, beside ours. A time in full is the reader's own.
function localTimes() {
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  for (const time of document.querySelectorAll("time[datetime][title$=UTC]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    if (time.textContent === time.title) time.textContent = local.format(moment);
    time.title = `${local.format(moment)} (${time.title.replace(" UTC", " in UTC")})`;
  }
}

// What came is the page that asks for a login: says so above the rows, which are no longer renewed.
function loggedOut(list) {
  const link = Object.assign(document.createElement("a"), { href: list.dataset.from, textContent: "Log in" });
  const words = Object.assign(document.createElement("p"), { className: "alarm warn", role: "alert" });
  words.append("Progress is no longer updated: your login has ended. ", link);
  list.prepend(words);
}

// Watches requeues that run.
async function requeues(list) {
  while (list.querySelector(".running")) {
    await new Promise((resolve) => setTimeout(resolve, 2000));
    const answer = document.hidden ? undefined : await fetch(list.dataset.from, { cache: "no-store" }).catch(() => undefined);
    if (!answer?.ok || list.contains(document.activeElement)) continue;
    const shown = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("requeues");
    if (!shown) return loggedOut(list);
    list.replaceChildren(...shown.childNodes);
    localTimes();
  }
}

// The API's reference has colours of its own.
if (by("rapidoc")) by("rapidoc").setAttribute("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

for (const svg of document.querySelectorAll("[data-chart]")) chart(svg);
localTimes();
if (by("requeues")) requeues(by("requeues"));
if (by("pulse")) fleet(by("pulse"));
if (by("do")) feed(by("do"));
