// Opens the page where there is no network. The page's own files are asked of the service first, so that nobody keeps an old
// page; a whole set of them is kept for when it does not answer. What the API says is never kept here.

const files = [
  "/driver/", "/driver/main.js", "/driver/driver.css", "/driver/manifest.webmanifest", "/driver/again.js", "/driver/card.js",
  "/driver/firebase.js", "/driver/jobs.js", "/driver/language.js", "/driver/offers.js", "/driver/session.js", "/driver/shell.js",
  "/driver/signin.js", "/driver/still.js", "/driver/taps.js", "/driver/words.js", "/driver/work.js", "/driver/icon-192.png",
  "/assets/api.js", "/assets/base.css", "/assets/icon.svg", "/assets/preact.js", "/assets/stream.js", "/assets/ui.js",
];
const prefix = "driver ";
const patience = 4000; // ms

// keep fetches the whole set and keeps it under a name made of what is in it, in place of the sets before: one that is half old
// and half new may not work.
async function keep() {
  const answers = await Promise.all(files.map((f) => fetch(f, { cache: "no-cache" })));
  if (answers.some((a) => !a.ok)) throw new Error("not all the files are there");
  const name = prefix + await digest(answers.map((a) => a.headers.get("ETag")).join(" "));
  if (!await caches.has(name)) {
    try {
      const cache = await caches.open(name);
      await Promise.all(files.map((f, i) => cache.put(f, answers[i])));
    } catch (err) {
      await caches.delete(name);
      throw err;
    }
  }
  const old = (await caches.keys()).filter((n) => n.startsWith(prefix) && n !== name);
  await Promise.all(old.map((n) => caches.delete(n)));
}

async function digest(text) {
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return Array.from(bytes.subarray(0, 8), (b) => b.toString(16).padStart(2, "0")).join("");
}

// answer asks the service, and takes what was kept where that fails or takes too long.
async function answer(request, path) {
  const kept = await caches.match(path);
  if (!kept) return fetch(request);
  const late = new Promise((resolve) => { setTimeout(resolve, patience, kept); });
  const fresh = fetch(request).then((a) => (a.status < 500 ? a : kept), () => kept);
  return Promise.race([fresh, late]);
}

addEventListener("install", (e) => {
  skipWaiting();
  e.waitUntil(keep());
});

addEventListener("fetch", (e) => {
  const { origin, pathname } = new URL(e.request.url);
  if (e.request.method !== "GET" || origin !== location.origin || !files.includes(pathname)) return;
  e.respondWith(answer(e.request, pathname));
  // Who opens the page has a network now: see whether there is a newer set. It fails where there is none after all.
  if (e.request.mode === "navigate") e.waitUntil(keep().catch(() => {}));
});
