// What the pages do beyond being read: live numbers on the fleet's page, and the buttons of a feed's page.
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
}

function fleet(pulse) {
  let source;
  const state = (words, lost) => {
    pulse.hidden = false;
    pulse.classList.toggle("lost", lost);
    pulse.lastElementChild.textContent = words;
  };
  const numbers = (event) => {
    const { texts, paths } = JSON.parse(event.data);
    for (const shown of document.querySelectorAll("[data-text]")) {
      const text = texts[shown.dataset.text];
      if (text !== undefined && shown.textContent !== text) shown.textContent = text;
    }
    for (const shown of document.querySelectorAll("[data-path]")) shown.setAttribute("d", paths[shown.dataset.path] ?? "");
    state("live", false);
  };
  const lists = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) replace(id, html);
  };
  const open = () => {
    source = new EventSource(at("live"));
    source.addEventListener("numbers", numbers);
    source.addEventListener("lists", lists);
    source.onerror = () => state(source.readyState === EventSource.CLOSED ? "not live: reload" : "reconnecting", true);
  };
  // A page that nobody sees needs no numbers.
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (!document.hidden) open();
  });
  open();
}

const WORDS = {
  refresh: "It is polled as soon as its host allows it.",
  pause: "It is paused.",
  resume: "It is polled again.",
  forget: "Its next poll reads it whole.",
  requeue: "Its penalty is lifted; it is polled as soon as its host allows it.",
};

// What the API is asked for: one of a feed's own changes, or a requeue of this feed alone.
function change(what, id, headers) {
  if (what !== "requeue") return fetch(at(`../api/v1/feeds/${id}/${what}`), { method: "POST", headers });
  const body = JSON.stringify({ filter: { feed: Number(id) }, lift_penalties: true });
  return fetch(at("../api/v1/requeue"), { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body });
}

function feed(form) {
  const done = by("done");
  const token = form.elements.token;
  // For as long as this tab is open: the page is a new one after each change.
  if (token) token.value = sessionStorage.getItem("token") ?? "";

  async function renew() {
    const answer = await fetch(at(""), { cache: "no-store" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ["feed", "buttons", "details"]) by(id).replaceWith(page.getElementById(id));
  }

  // A refresh is answered before the poll: look again until the poll has come, for a while.
  async function follow(version) {
    for (let turn = 0; turn < 15 && by("feed").dataset.version === version; turn += 1) {
      await new Promise((resolve) => setTimeout(resolve, 1000 + 500 * turn));
      await renew();
    }
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const what = event.submitter.value;
    const version = by("feed").dataset.version;
    event.submitter.disabled = true;
    done.className = "";
    done.textContent = "Asking …";
    try {
      const headers = token ? { Authorization: "Bearer " + token.value } : {};
      const answer = await change(what, form.dataset.id, headers);
      const said = await answer.json().catch(() => ({}));
      if (answer.status === 401) throw new Error("this is none of the tokens in api.tokens");
      if (!answer.ok) throw new Error(said.error ?? answer.statusText);
      if (token) sessionStorage.setItem("token", token.value);
      done.textContent = WORDS[what];
      await renew();
      if (what === "refresh" || what === "requeue") await follow(version);
    } catch (error) {
      done.className = "bad";
      done.textContent = "That did not work: " + error.message;
    } finally {
      event.submitter.disabled = false;
    }
  });
  form.hidden = false;
}

if (by("pulse")) fleet(by("pulse"));
if (by("do")) feed(by("do"));
