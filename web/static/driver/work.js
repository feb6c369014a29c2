// Reads the driver's work and makes the driver's changes: what comes of it is the state's, in work_state.js.
import { Problem, Unreachable, freshKey, now } from "../assets/api.js";
import { share } from "../assets/stream.js";
import { hurry, insist, nap, pace } from "./again.js";
import { decide, measure } from "./taps.js";
import { begin, missing, reduce, unreported } from "./work_state.js";

/** @import { Session } from "./session.js" */
/** @import { Deed, Dispatch, Event, Notice, State, Tap } from "./work_state.js" */

const spacing = 300; // ms between readings at least
const poll = 30_000; // ms; the stream does not announce a suspension by the backoffice
const offersShown = 50;
/** @typedef {"me"|"offers"|"jobs"} Part */

/** @type {Part[]} */
const all = ["me", "offers", "jobs"];
/** @type {Partial<Record<Schemas["Receipt"]["outcome"], Notice["kind"]|null>>} */
const kindOf = { CANCELED: "canceled", WON: null, WITHDRAWN: null }; // null: the job was not taken away

export class Work {
  #session;
  /** @type {Set<(state: State) => void>} */
  #listeners = new Set();
  #stopped = new AbortController();
  /** @type {Set<Part>} */
  #wanted = new Set();
  #reading = false;
  /** @type {string|undefined} */
  #offersTag;
  #unfollow = () => {};
  /** @type {State} */
  state;

  /** @param {Pick<Session, "kept"|"keep"|"call"|"renew"|"token">} session */
  constructor(session) {
    this.#session = session;
    this.state = begin(session.kept.known, session.kept.taps);
  }

  start() {
    this.#follow();
    if (this.state.me) this.#resume();
    const cut = () => this.#tell({ type: "link", link: "cut", sure: true });
    const looked = () => document.visibilityState === "visible" && this.read();
    const timer = setInterval(looked, poll);
    document.addEventListener("visibilitychange", looked);
    addEventListener("online", hurry);
    addEventListener("offline", cut);
    this.#stopped.signal.addEventListener("abort", () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", looked);
      removeEventListener("online", hurry);
      removeEventListener("offline", cut);
      this.#unfollow();
    });
    this.read();
  }

  stop() {
    this.#stopped.abort();
  }

  /** Calls listener with each state. @param {(state: State) => void} listener @returns {() => void} stops the calls */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Changes the state, keeps what a reload needs, and does what the change asks for. @param {Event} event */
  #tell(event) {
    const before = this.state, state = this.state = reduce(before, event);
    if (state === before) return;
    if (state.taps !== before.taps) this.#session.keep({ taps: Object.fromEntries(state.taps) });
    if (["read", "noted", "dismiss"].includes(event.type) || event.type === "answered" && state.jobs !== before.jobs) this.#remember();
    for (const listener of this.#listeners) listener(state);
    for (const [id, tap] of state.taps) {
      const last = before.taps.get(id);
      if (tap.state !== "done" || last === tap) continue;
      if (tap.answer?.waiting && last?.state !== "done") measure(this.#asked(tap));
      if (tap.answer?.kind !== "early") this.read();
    }
  }

  #remember() {
    const { me, offers, jobs, at, notices } = this.state;
    this.#session.keep({ known: { me, offers, jobs, at, notices } });
  }

  /** @param {string} method @param {string} path @param {import("../assets/api.js").Options} [options] */
  #call = (method, path, options) => this.#session.call(method, path, { ...options, signal: this.#stopped.signal });

  #follow() {
    const { token } = this.#session;
    this.#unfollow = share("/v1/stream", this.#session.kept.id ?? "", {
      token,
      onEvent: (event, /** @type {Schemas["DriverEvent"]} */ { dispatch_id: id, round }) => {
        this.#tell({ type: "heard", event, id, round });
        this.read();
      },
      onResync: () => this.read(),
      onState: (state) => this.#linked(state, token),
    });
  }

  /** @param {import("../assets/stream.js").State} state @param {string} token */
  async #linked(state, token) {
    this.#tell({ type: "link", link: state === "live" ? "live" : "cut", sure: state === "refused" });
    if (state === "live") {
      hurry();
      this.read();
    }
    if (state !== "refused") return;
    const { signal } = this.#stopped;
    try {
      if (await insist(() => this.#session.renew(token), { signal })) this.#follow();
    } catch (err) {
      if (!signal.aborted) throw err;
    }
  }

  /** Schedules another reading. */
  read() {
    for (const part of all) this.#wanted.add(part);
    if (!this.#reading) this.#readAll();
  }

  async #readAll() {
    const { signal } = this.#stopped;
    const parts = { me: this.#readMe, offers: this.#readOffers, jobs: this.#readJobs };
    this.#reading = true;
    try {
      for (let failures = 0; this.#wanted.size > 0;) {
        const wanted = [...this.#wanted];
        this.#wanted.clear();
        try {
          const asked = performance.now(), at = now();
          await Promise.all(wanted.map((part) => parts[part].call(this, asked, at)));
          failures = 0;
          this.#tell({ type: "read", at: now() });
          await nap(spacing, signal);
        } catch (err) {
          signal.throwIfAborted();
          if (!(err instanceof Problem || err instanceof Unreachable)) throw err;
          if (err instanceof Problem && err.status === 401) return;
          wanted.forEach((part) => this.#wanted.add(part));
          this.#tell({ type: "failed", error: err, unreachable: err instanceof Unreachable });
          await nap(pace(failures++), signal);
        }
      }
    } catch (err) {
      if (!signal.aborted) throw err;
    } finally {
      this.#reading = false;
    }
  }

  /** @param {number} _ @param {number} at */
  async #readMe(_, at) {
    const first = this.state.me?.id;
    const { data: me } = await this.#call("GET", "/v1/me");
    this.#tell({ type: "me", me, at });
    if (me.id !== first) this.#resume();
  }

  /** @param {number} asked @param {number} at */
  async #readOffers(asked, at) {
    const { data, status, etag } = await this.#call("GET", `/v1/me/offers?limit=${offersShown}`, { etag: this.#offersTag });
    if (status === 304) return this.#tell({ type: "offers", asked, at });
    this.#offersTag = etag ?? undefined;
    this.#tell({ type: "offers", items: data.items, more: Boolean(data.next_cursor), asked, at });
  }

  /** @param {number} asked @param {number} at */
  async #readJobs(asked, at) {
    const lists = await Promise.all(["IN_PROGRESS", "ACCEPTED", "COMPLETED"].map(async (status) => {
      const most = status === "COMPLETED" ? 20 : 50;
      return (await this.#call("GET", `/v1/me/dispatches?status=${status}&limit=${most}`)).data;
    }));
    /** @type {Dispatch[]} */
    const items = lists.flatMap((l) => l.items), held = [];
    /** @type {Notice[]} */
    const lost = [];
    for (const job of missing(this.state, items, asked)) {
      const { kind, dispatch } = await this.#whereTo(job);
      if (kind) lost.push({ kind, dispatch: job });
      else if (dispatch) held.push(dispatch);
    }
    this.#tell({ type: "jobs", items, held, lost, more: lists.some((l) => l.next_cursor), asked, now: performance.now(), at });
  }

  /**
   * Finds what happened to a job that the driver had: kind says how it was taken away. If it is still the driver's, dispatch is the job.
   * @param {Dispatch} job
   * @returns {Promise<{kind?: Notice["kind"]|null, dispatch?: Dispatch}>}
   */
  async #whereTo({ id, round }) {
    try {
      /** @type {Schemas["Receipt"]} */
      const receipt = (await this.#call("GET", `/v1/me/dispatches/${id}/claim`)).data;
      const kind = receipt.round === round && receipt.outcome in kindOf ? kindOf[receipt.outcome] : "unassigned";
      if (kind || receipt.outcome === "WITHDRAWN") return { kind };
      return { dispatch: (await this.#call("GET", `/v1/dispatches/${id}`)).data };
    } catch (err) {
      if (err instanceof Problem && err.status === 404) return { kind: "unassigned" };
      throw err;
    }
  }

  /** Asks on for the taps of an earlier page. */
  #resume() {
    for (const tap of this.state.taps.values()) {
      if (tap.state !== "done") decide(this.#asked(tap));
      else if (tap.answer?.waiting) measure(this.#asked(tap));
    }
  }

  /** @param {Tap} tap @returns {import("./taps.js").Asked} */
  #asked({ key, dispatch: { id } }) {
    const tap = () => {
      const present = this.state.taps.get(id);
      return present?.key === key ? present : undefined;
    };
    return { tap, call: this.#call, tell: (event) => this.#tell(event), signal: this.#stopped.signal };
  }

  /** Taps Accept, unless that tap is under way. @param {Dispatch} dispatch */
  accept(dispatch) {
    const key = freshKey();
    this.#tell({ type: "tap", dispatch, key });
    const tap = this.state.taps.get(dispatch.id);
    if (tap?.key === key) decide(this.#asked(tap));
  }

  /** Removes the answer to a tap, or an ended offer. @param {string} id */
  forget(id) {
    this.#tell({ type: "forget", id });
  }

  /** @param {Notice} notice */
  dismiss(notice) {
    this.#tell({ type: "dismiss", notice });
  }

  /** Reports to the service that an offer was on the screen, once for each round. @param {Dispatch} offer */
  async seen({ id, round, offer_status: status }) {
    const tells = unreported(this.state, { id, round, status });
    this.#tell({ type: "shown", id, round, status });
    if (!tells) return;
    const { signal } = this.#stopped;
    try {
      await insist(() => this.#call("POST", `/v1/dispatches/${id}/seen`, { body: { round } }), { signal });
      this.#tell({ type: "noted", id, round, status });
    } catch (err) {
      if (!signal.aborted && !(err instanceof Problem)) throw err; // the offer has ended
    }
  }

  /** @param {boolean} onDuty */
  setDuty(onDuty) {
    return this.#do("duty", { wanted: onDuty }, async () => {
      const { data: me } = await this.#call("PUT", "/v1/me/duty", { body: { on_duty: onDuty } });
      this.#tell({ type: "duty", me });
      this.#offersTag = undefined;
    });
  }

  /** @param {NonNullable<Deed["what"]>} what @param {Dispatch} dispatch @param {string} [reason] */
  change(what, { id, round }, reason) {
    return this.#do(id, { what }, async () => {
      await this.#call("POST", `/v1/dispatches/${id}/${what}`, { body: { round, reason_code: reason } });
      this.#tell({ type: "changed", what, id });
    });
  }

  /**
   * Repeats act until its outcome is known, once at a time for each subject.
   * @param {string} about @param {Deed} deed @param {() => Promise<void>} act
   */
  async #do(about, deed, act) {
    const last = this.state.deeds[about];
    if (last && !last.error) return;
    const say = (/** @type {Deed|undefined} */ deed) => this.#tell({ type: "deed", about, deed });
    const { signal } = this.#stopped;
    say(deed);
    try {
      await insist(act, { signal, onUnknown: () => say({ ...deed, unknown: true }) });
      say(undefined);
    } catch (error) {
      if (signal.aborted) return;
      say({ ...deed, error });
      if (!(error instanceof Problem)) throw error;
    }
    this.read();
  }
}
