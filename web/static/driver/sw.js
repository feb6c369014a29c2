// Opens the page without a network. It requests the page's own files from the service first, so that no old page stays in use.
// It stores a complete set of them for the time when the service does not answer. It never stores an answer of the API.

const files = [
  "/driver/", "/driver/main.js", "/driver/driver.css", "/driver/manifest.webmanifest", "/driver/again.js", "/driver/offers.js",
  "/driver/session.js", "/driver/signin.js", "/driver/taps.js", "/driver/words.js", "/driver/words_en.js", "/driver/words_ko.js",
  "/driver/work.js", "/driver/work_state.js", "/driver/icon-192.png",
  "/assets/api.js", "/assets/base.css", "/assets/icon.svg", "/assets/language.js",
  "/assets/preact.js", "/assets/stream.js", "/assets/ui.js", "/assets/words.js", "/assets/writing.js", "/assets/zone.js",
];
const prefix = "driver ";
const patience = 4000; // ms

// keep fetches the complete set and stores it under a name made of its contents, in place of the earlier sets. A mixture of old
// and new files may not work.
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

// answer requests a file from the service, and takes the stored file if that fails or takes too long.
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
  // The page is being opened, so the device probably has a network: fetch a newer set. Without a network that fails.
  if (e.request.mode === "navigate") e.waitUntil(keep().catch(() => {}));
});
